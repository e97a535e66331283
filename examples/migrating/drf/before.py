"""An API with uploads."""

import django
from django.conf import settings
from django.urls import path

settings.configure(
    SECRET_KEY="only for this example",
    ROOT_URLCONF=__name__,
    ALLOWED_HOSTS=["testserver"],
    INSTALLED_APPS=["django.contrib.auth", "django.contrib.contenttypes", "rest_framework"],
    REST_FRAMEWORK={
        "DEFAULT_THROTTLE_CLASSES": [
            "rest_framework.throttling.AnonRateThrottle",
            "rest_framework.throttling.ScopedRateThrottle",
        ],
        "DEFAULT_THROTTLE_RATES": {"anon": "8/hour", "uploads": "3/day"},
    },
)
django.setup()

from rest_framework.response import Response
from rest_framework.views import APIView


class Items(APIView):
    def get(self, request):
        return Response({"items": []})


class Uploads(APIView):
    throttle_scope = "uploads"

    def post(self, request):
        return Response({"stored": True})


urlpatterns = [path("items/", Items.as_view()), path("uploads/", Uploads.as_view())]
