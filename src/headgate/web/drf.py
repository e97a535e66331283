"""Django REST framework: limits as throttles, which know the user that the framework has authenticated.

class Uploads(RateLimitThrottle):
    limits = "10/minute; 100/day"

REST_FRAMEWORK = {"DEFAULT_THROTTLE_CLASSES": ["api.throttles.Uploads"]}
"""

from __future__ import annotations

import inspect
from collections.abc import Container, Mapping
from typing import Any, ClassVar, Final

from django.core.exceptions import ImproperlyConfigured

from headgate.wording import requiring

with requiring("headgate.web.drf", "djangorestframework", "rest_framework"):
    from rest_framework.exceptions import APIException
    from rest_framework.settings import api_settings
    from rest_framework.throttling import BaseThrottle


from headgate.errors import HeadgateError, InvalidCall
from headgate.web.django.limits import ViewLimit
from headgate.web.django.request import Request, View
from headgate.web.django.site import rate_limits
from headgate.web.django.site_limits import ON_REQUEST, RateLimitExceeded, SiteLimits
from headgate.web.endpoint import EndpointLimit

TOO_MANY: Final = 429
METHOD: Final = 2
"""The number of parameters of a method (`self`, `request`)."""


class RateLimitThrottle(BaseThrottle):
    """A limit as a throttle: one count for each user, or address without a user, over all views that have it.

    `limits` and `key` are as everywhere, or methods, as in `def limits(self, request)`; `rule` has other fields of a
    policy's rule. A `scope`, the throttle's or else the view's `throttle_scope`, names the count, and selects `limits`
    from `DEFAULT_THROTTLE_RATES` if there are none. All such throttles of a view are one decision: all are charged,
    or none is.
    """

    limits: ClassVar[Any] = None
    key: ClassVar[Any] = "user"
    rule: ClassVar[Mapping[str, Any]] = {}
    scope: ClassVar[str | None] = None
    __headgate_limits__: ClassVar[bool] = True
    """A mark: the default limits do not apply to views with such a throttle."""
    _made: ClassVar[dict[tuple[str | None, Any], ViewLimit]] = {}

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls._made = {}
        if cls.limits is not None:
            cls._limit(cls.scope, cls.limits)  # a mistake raises here, at the class

    def __init__(self) -> None:
        self._refusal: RateLimitExceeded | None = None

    def allow_request(self, request: Request, view: View) -> bool:
        """Return whether the request is admitted; the first of a view's throttles decides for all of them."""
        decided = _limits_of(request)
        limit = self.limit_at(view)
        if decided is None or limit is None or limit in decided.asked or decided.refusal is not None:
            return True
        limits = tuple(dict.fromkeys([limit, *_others(view, decided.asked)]))
        own = request._request  # each attribute that REST framework looks up in it costs a failed lookup first
        decided.connection, decided.path = request, own.path_info
        try:
            self._refusal = decided.enter(own, limits)
        finally:
            decided.connection = None  # it refers to the limits
        if decided.follows and not decided.settles:
            raise HeadgateError(f"{type(self).__name__} counts by the response; add RateLimitMiddleware to MIDDLEWARE")
        if self._refusal is None:
            return True
        if self._refusal.response.status_code != TOO_MANY:
            error: Any = APIException(self._refusal.detail)
            error.status_code = self._refusal.response.status_code
            error.auth_header = self._refusal.response.get("WWW-Authenticate")
            raise error
        return False

    def wait(self) -> float | None:
        """Return the seconds until a request may pass; None if no wait helps or none is shown."""
        return None if self._refusal is None else self._refusal.retry_after

    @classmethod
    def limit_at(cls, view: View) -> ViewLimit | None:
        """Return the limit at a view; None if there is no scope, or its rate is None."""
        if cls.limits is not None:
            return cls._limit(cls.scope, cls.limits)
        scope = cls.scope or getattr(view, "throttle_scope", None)
        if scope is None:
            return None
        rates = api_settings.DEFAULT_THROTTLE_RATES
        if scope not in rates:
            raise ImproperlyConfigured(f"{cls.__name__} has no limits; set them, or DEFAULT_THROTTLE_RATES[{scope!r}]")
        return None if rates[scope] is None else cls._limit(scope, rates[scope])

    @classmethod
    def _limit(cls, scope: str | None, limits: Any) -> ViewLimit:  # noqa: ANN401
        words = limits if callable(limits) else str(limits)
        limit = cls._made.get((scope, words))
        if limit is None:
            if "shadow" in cls.rule.get("act", ()):
                raise InvalidCall(f"{cls.__name__}: a throttle cannot have act: shadow; write limited(...) at the view")
            key = cls._of_request(cls.key)
            parts = list(key) if isinstance(key, list | tuple) else [key]
            whose = [] if scope else [{"constant": f"{cls.__module__}.{cls.__qualname__}"}]
            given = {"name": scope or cls.__name__, **cls.rule, "key": [*whose, *parts]}
            limit = cls._made[scope, words] = ViewLimit(cls._of_request(limits), given)
        return limit

    @classmethod
    def _of_request(cls, given: Any) -> Any:  # noqa: ANN401
        """Turn a method of the throttle (`def limits(self, request)`) into a function of the request."""
        if callable(given) and len(inspect.signature(given).parameters) == METHOD:
            return lambda request: given(cls(), request)
        return given


def _others(view: View, asked: Container[EndpointLimit]) -> list[ViewLimit]:
    """Return the limits of a view's throttles that were not asked; a throttle with its own `allow_request` has none."""
    limits = []
    for throttle in view.get_throttles() if hasattr(view, "get_throttles") else ():
        if isinstance(throttle, RateLimitThrottle):
            asks = type(throttle).allow_request is RateLimitThrottle.allow_request
            limit = throttle.limit_at(view) if asks else None
            if limit is not None and limit not in asked:
                limits.append(limit)
    return limits


def _limits_of(request: Request) -> SiteLimits | None:
    """Return the limits of the request; None if limits are disabled."""
    if not rate_limits.setup.enabled:
        return None
    decided: SiteLimits | None = getattr(request._request, ON_REQUEST, None)
    if decided is None:
        decided = rate_limits.opened.limits(False)()
        decided.settles = False
        setattr(request._request, ON_REQUEST, decided)
    return decided
