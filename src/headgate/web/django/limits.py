"""The limits of a view: decorators set them, and the middleware reads them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, Final

from asgiref.sync import iscoroutinefunction

from headgate.errors import InvalidCall
from headgate.limit import as_limits
from headgate.policy import RequestView
from headgate.policy.edges import DEFAULT_PLAN
from headgate.web.django.request import Request, View, result_of
from headgate.web.endpoint import CALLABLE, EndpointLimit
from headgate.wording import shown

LIMITS: Final = "__headgate_limits__"
"""The attribute of a view that holds its limits; an empty tuple if it is exempt."""


class ViewLimit(EndpointLimit):
    """One limit at a view. Functions (`limits`, `key`, `cost`, `exempt`) take the request."""

    __slots__ = ("by_user", "functions")

    def __init__(self, limits: Any, rule: Mapping[str, Any]) -> None:  # noqa: ANN401
        super().__init__(limits, rule, result_of)
        given = {**rule, "limits": limits}
        values = [each for field in CALLABLE for each in _listed(given.get(field))]
        self.functions: tuple[Callable[..., Any], ...] = tuple(each for each in values if callable(each))
        self.by_user = "user" in _listed(given.get("key"))
        for function in self.functions:
            if iscoroutinefunction(function):
                raise InvalidCall(
                    f"{shown(function)} is async; write a plain function, which may query the database under ASGI too"
                )


def _listed(value: Any) -> list[Any]:  # noqa: ANN401
    return list(value) if isinstance(value, list | tuple) else [value]


@lru_cache(maxsize=4096)
def limits_at(view: View, method: str) -> tuple[tuple[tuple[ViewLimit, ...], str], ...]:
    """Return the limits of a view and those of its method, with the method's name; empty if it is exempt."""
    name, handler = _handler(view, method.lower())
    said = [(getattr(view, LIMITS, None), ""), (getattr(handler, LIMITS, None), name)]
    return tuple((limits, at) for limits, at in said if limits is not None)


def _handler(view: View, method: str) -> tuple[str, Any]:
    """Return the method of a class that answers; `get` answers HEAD, and a viewset maps methods to other names."""
    kind = getattr(view, "cls", None) or getattr(view, "view_class", None)
    actions = getattr(view, "actions", None)
    for name in (method, "get") if method == "head" else (method,):
        action = name if actions is None else actions.get(name)
        if action is not None and hasattr(kind, action):
            return action, getattr(kind, action)
    return "", None


def has_throttles(view: View) -> bool:
    """Return whether one of the throttles of a REST framework view is a limit; an action may have its own."""
    of_class = getattr(getattr(view, "cls", None), "throttle_classes", None)
    throttles = (getattr(view, "initkwargs", None) or {}).get("throttle_classes", of_class)
    return any(hasattr(throttle, LIMITS) for throttle in throttles or ())


def by_group(limits: Mapping[str, str]) -> Callable[[Request], str]:
    """Return limits for a view, by the first listed group of the user; `default` is for all other users.

    An empty string means no limit.
    """
    if DEFAULT_PLAN not in limits:
        raise InvalidCall(f"{DEFAULT_PLAN!r} is missing in {', '.join(limits)}; add the limit of all other users")
    for words in filter(None, limits.values()):
        as_limits(words)

    def limits_of(request: Request) -> str:
        if isinstance(request, RequestView):
            raise InvalidCall(
                "by_group works at views and in DEFAULT only; in a policy, write plans and set HEADGATE['PLAN']"
            )
        user = getattr(request, "user", None)
        if user is None or not user.is_authenticated:
            return limits[DEFAULT_PLAN]
        groups = set(user.groups.values_list("name", flat=True))
        return next((words for name, words in limits.items() if name in groups), limits[DEFAULT_PLAN])

    return limits_of
