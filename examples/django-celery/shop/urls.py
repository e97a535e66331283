"""The pages of the site."""

from django.http import HttpResponse
from django.urls import path
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_POST

from headgate.web.django import limited
from shop import tasks


@csrf_exempt
@require_POST
@limited("5/hour")
def invite(request):
    tasks.invite.delay(request.POST["to"])
    return HttpResponse("The invitation is on its way.", status=202)


urlpatterns = [path("invite/", invite)]
