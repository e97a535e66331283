"""The settings of the site."""

DEBUG = True
SECRET_KEY = "only for this example"
ROOT_URLCONF = "shop.urls"
INSTALLED_APPS = ["headgate.web.django"]
MIDDLEWARE = ["headgate.web.django.RateLimitMiddleware"]
EMAIL_BACKEND = "django.core.mail.backends.console.EmailBackend"

REDIS = "redis://127.0.0.1:6390"
CELERY_BROKER_URL = REDIS
HEADGATE = {"STORE": REDIS, "DEFAULT": "100/minute"}
