"""A site with a login and a newsletter."""

import django
from django.conf import settings
from django.http import HttpResponse, HttpResponseForbidden
from django.urls import path
from django_ratelimit.decorators import ratelimit
from django_ratelimit.exceptions import Ratelimited

settings.configure(SECRET_KEY="only for this example", ROOT_URLCONF=__name__, ALLOWED_HOSTS=["testserver"])
django.setup()


@ratelimit(key="ip", rate="10/h", method="POST", block=True)
@ratelimit(key="post:name", rate="5/h", method="POST", block=True)
def login(request):
    if request.method == "GET":
        return HttpResponse("a form")
    return HttpResponse(status=200 if request.POST.get("password") == "right" else 401)


@ratelimit(key="ip", rate="3/d", method="POST", block=True)
def subscribe(request):
    return HttpResponse("thank you")


def handler403(request, exception=None):
    if isinstance(exception, Ratelimited):
        return HttpResponse("too many requests", status=429)
    return HttpResponseForbidden("forbidden")


urlpatterns = [path("login/", login), path("subscribe/", subscribe)]
