"""Limits by the groups of Django's users."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from headgate.errors import InvalidCall
from headgate.limit import as_limits
from headgate.policy import RequestView
from headgate.policy.edges import DEFAULT_PLAN
from headgate.web.django.request import Request


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
