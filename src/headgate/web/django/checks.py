"""System checks: `manage.py check` reports mistakes in `HEADGATE` before the first request."""

from __future__ import annotations

from typing import Any, Final

from django.conf import settings
from django.core.checks import CheckMessage, Error, Warning  # noqa: A004
from django.urls import get_resolver
from django.utils.module_loading import import_string

from headgate.policy import Policy
from headgate.stores import MemoryStore
from headgate.web.django.decorators import DECORATED
from headgate.web.django.middleware import RateLimitMiddleware
from headgate.web.django.request import primary_key
from headgate.web.django.settings import Setup
from headgate.web.django.site import routes_in
from headgate.web.unmatched_rules import unreached

AUTHENTICATION: Final = "django.contrib.auth.middleware.AuthenticationMiddleware"
OURS: Final = f"{RateLimitMiddleware.__module__}.{RateLimitMiddleware.__qualname__}"
PATH: Final = "headgate.web.django.RateLimitMiddleware"


def check_settings(**_: Any) -> list[CheckMessage]:  # noqa: ANN401
    """Report mistakes in the settings, and middleware that they need."""
    if getattr(settings, "ROOT_URLCONF", None):
        get_resolver().url_patterns  # noqa: B018 - importing the views registers their limits
    if not hasattr(settings, "HEADGATE") and not DECORATED:
        return []
    setup = Setup(getattr(settings, "HEADGATE", {}))
    return [
        *(Error(each.message, id=each.id) for each in setup.mistakes),
        *_check_middleware(setup),
        *_check_paths(setup),
    ]


def check_deployment(**_: Any) -> list[CheckMessage]:  # noqa: ANN401
    """Warn of limits that count in one process only."""
    store = Setup(getattr(settings, "HEADGATE", {})).store
    in_memory = store is None or isinstance(store, MemoryStore) or str(store).startswith("memory:")
    if not hasattr(settings, "HEADGATE") or not in_memory:
        return []
    text = "The limits are in the memory of each process: every worker admits the whole limit."
    hint = "Set HEADGATE['STORE'] to 'shared:///dev/shm/api' on one host, or to 'redis://...' for several hosts."
    return [Warning(text, hint, id="headgate.W001")]


def _check_middleware(setup: Setup) -> list[CheckMessage]:
    places = _places()
    if OURS not in places:
        text = "Limits are configured, but the middleware is missing."
        return [Error(text, f"Add '{PATH}' to MIDDLEWARE, after AuthenticationMiddleware.", id="headgate.E003")]
    if setup.user_of is not primary_key or not (setup.by_user or _views_by_user(setup)):
        return []
    if AUTHENTICATION not in places:
        text = "Limits count by user, but AuthenticationMiddleware is missing: no request has a user."
        return [Error(text, "Add it to MIDDLEWARE, or set HEADGATE['USER'] to a function.", id="headgate.E004")]
    if setup.by_user and places[OURS] < places[AUTHENTICATION]:
        text = "The policy counts by user, but runs before AuthenticationMiddleware: no request has a user yet."
        return [Error(text, f"Move '{PATH}' below it in MIDDLEWARE.", id="headgate.E004")]
    return []


def _check_paths(setup: Setup) -> list[CheckMessage]:
    """Warn of rules that match no route of the site."""
    if setup.mistakes or setup.policy is None or not getattr(settings, "ROOT_URLCONF", None):
        return []
    found = unreached(Policy.load(setup.policy), list(routes_in()))
    return [Warning(f"HEADGATE['POLICY']: {words}.", id="headgate.W002") for words, near in found if near]


def _views_by_user(setup: Setup) -> bool:
    """Return whether a view's limit counts by user; the middleware's position does not matter for views."""
    return any(limit is not None and limit.by_user for limit in (setup.default, *DECORATED))


def _places() -> dict[str, int]:
    """Return the first position of each class in `MIDDLEWARE`, and of its base classes."""
    places: dict[str, int] = {}
    for at, path in enumerate(settings.MIDDLEWARE):
        for kind in getattr(import_string(path), "__mro__", ()):
            places.setdefault(f"{kind.__module__}.{kind.__qualname__}", at)
    return places
