"""An API with uploads."""

import django
from django.conf import settings
from django.urls import path

settings.configure(
    SECRET_KEY="only for this example",
    ROOT_URLCONF=__name__,
    ALLOWED_HOSTS=["testserver"],
    INSTALLED_APPS=["django.contrib.auth", "django.contrib.contenttypes", "rest_framework", "headgate.web.django"],
    MIDDLEWARE=["headgate.web.django.RateLimitMiddleware"],
    REST_FRAMEWORK={"DEFAULT_THROTTLE_RATES": {"anon": "8/hour", "uploads": "3/day"}},
)
django.setup()

from rest_framework.response import Response
from rest_framework.views import APIView

from headgate.web.drf import RateLimitThrottle


class Anon(RateLimitThrottle):
    scope, key = "anon", "ip"
    rule = {"exempt": lambda request: request.user.is_authenticated}


class Api(APIView):
    throttle_classes = [Anon, RateLimitThrottle]


class Items(Api):
    def get(self, request):
        return Response({"items": []})


class Uploads(Api):
    throttle_scope = "uploads"

    def post(self, request):
        return Response({"stored": True})


urlpatterns = [path("items/", Items.as_view()), path("uploads/", Uploads.as_view())]
