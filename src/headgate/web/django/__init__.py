"""Django: a policy in front of the site, and limits at its views; one middleware for WSGI and ASGI.

MIDDLEWARE = [..., "headgate.web.django.RateLimitMiddleware"]
HEADGATE = {"STORE": "redis://cache", "POLICY": "policy.yaml", "DEFAULT": "100/minute"}

@limited("5/minute", key="user")
def search(request): ...
"""

from headgate.wording import requiring

with requiring("headgate.web.django", "django"):
    from headgate.web.django.decorators import exempt, limited
    from headgate.web.django.limits import by_group
    from headgate.web.django.middleware import RateLimitMiddleware
    from headgate.web.django.site import RateLimits, rate_limits
    from headgate.web.django.site_limits import RateLimitExceeded


__all__ = [
    "RateLimitExceeded",
    "RateLimitMiddleware",
    "RateLimits",
    "by_group",
    "exempt",
    "limited",
    "rate_limits",
]
