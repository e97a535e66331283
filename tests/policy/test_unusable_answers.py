"""Answers of an app's functions that would limit nobody: each fails its request with a message."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import pytest

from headgate import InvalidCall, InvalidPolicy, Policy
from headgate.web.wsgi import RateLimitMiddleware
from tests.support.edges import plain_wsgi, still, wsgi

pytestmark = pytest.mark.engineless


class User:
    """A user without a text of its own."""


class Later:
    """What a call of an `async def` returns."""

    def __await__(self) -> Generator[Any, Any, str]:
        yield
        return "ann"

    def __repr__(self) -> str:
        return "<coroutine>"


AWAITED = "a function gave <coroutine>, which has to be awaited: write it as an async def"


def app(rule: dict[str, Any], **options: Any) -> Any:
    policy = {"rules": [{"name": "api", "key": "ip", "limits": "1/minute", **rule}]}
    return RateLimitMiddleware(plain_wsgi, policy, store=still(), **options)


@pytest.mark.parametrize(
    "key", ["user", lambda view: view.user, ["ip", lambda view: view.user]], ids=["part", "function", "several"]
)
def test_a_key_that_differs_at_each_request_is_refused(key):
    """The place of an object in memory is another one at each request, so that nobody would ever be limited."""
    with pytest.raises(InvalidPolicy, match=r"rule api: key: <.*User object at .*> would be another key at each reque"):
        wsgi(app({"key": key}, user=lambda environ: User()))
    with pytest.raises(InvalidPolicy) as raised:
        wsgi(app({"key": key}, user=lambda environ: Later()))
    assert raised.value.mistakes == (f"rule api: key: {AWAITED}",)


def test_a_number_and_an_object_with_a_text_are_keys():
    """Databases number their users, and an object may write itself as text."""
    for given in (7, User):
        asked = app({"key": "user"}, user=lambda environ, given=given: given)
        assert [wsgi(asked).status for _ in range(2)] == [200, 429]


@pytest.mark.parametrize("field", ["exempt", "match"])
def test_a_condition_that_has_to_be_awaited_is_refused(field):
    """An answer that nobody has awaited is true: every request would be exempt."""
    said = rf"rules\[0\]\.{field}: a function gave <coroutine>, which has to be awaited"
    with pytest.raises(InvalidPolicy, match=said):
        wsgi(app({field: lambda view: Later()}))


@pytest.mark.parametrize("field", ["allow", "deny"])
def test_a_list_that_has_to_be_awaited_is_refused(field):
    """A policy's own conditions are checked like those of a rule."""
    policy = Policy({field: lambda view: Later(), "rules": [{"key": "ip", "limits": "1/minute"}]})
    with pytest.raises(InvalidPolicy, match=f"{field}: a function gave <coroutine>, which has to be awaited"):
        wsgi(RateLimitMiddleware(plain_wsgi, policy, store=still()))


def test_an_operator_gives_no_such_key():
    """`peek` and `ban` take the values of a key too."""
    with pytest.raises(InvalidCall, match="would be another key at each request"):
        app({"key": "user"}).peek("api", User())
