"""A site with a login and a newsletter."""

import django
from django.conf import settings
from django.http import HttpResponse
from django.urls import path

from headgate.web.django import limited

settings.configure(
    SECRET_KEY="only for this example",
    ROOT_URLCONF=__name__,
    ALLOWED_HOSTS=["testserver"],
    INSTALLED_APPS=["headgate.web.django"],
    MIDDLEWARE=["headgate.web.django.RateLimitMiddleware"],
    HEADGATE={"REFUSAL_VIEW": lambda request, error: HttpResponse("too many requests", status=429)},
)
django.setup()


@limited("10/hour", match={"method": "POST"})
@limited("5/hour", key=lambda request: request.POST.get("name"), match={"method": "POST"})
def login(request):
    if request.method == "GET":
        return HttpResponse("a form")
    return HttpResponse(status=200 if request.POST.get("password") == "right" else 401)


@limited("3/day", match={"method": "POST"})
def subscribe(request):
    return HttpResponse("thank you")


urlpatterns = [path("login/", login), path("subscribe/", subscribe)]
