"""`@limited` without parentheses: it raises where it stands, and functions that give limits or keys do not."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest

from headgate import AsyncLimiter, InvalidCall, Limiter
from headgate.web import aiohttp, fastapi, flask, grpc, starlette
from tests.support import django_site

pytestmark = pytest.mark.engineless

KINDS: dict[str, Any] = {
    "flask": flask.limited,
    "fastapi": fastapi.limited,
    "a dependency": fastapi.limit,
    "starlette": starlette.limited,
    "aiohttp": aiohttp.limited,
    "grpc": grpc.limited,
    "django": django_site.limited,
}
LIMITERS: dict[str, Any] = {"limiter": Limiter("5/minute"), "awaited": AsyncLimiter("5/minute")}


def logged(view: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(view)
    def outer(*args: Any) -> Any:
        return view(*args)

    return outer


def busy(*_: Any) -> str:
    return "5/minute"


def made() -> Callable[..., Any]:
    def given(*_: Any) -> str:
        return "5/minute"

    return given


@pytest.mark.parametrize("kind", KINDS)
def test_a_decorator_without_limits_raises_where_it_stands(kind):
    """A function, a method, one below another decorator: each would be answered by a decorator, at every request."""
    limited = KINDS[kind]
    with pytest.raises(InvalidCall, match=r'view: write @limited\("5/minute"\)'):

        @limited
        def view() -> None: ...

    with pytest.raises(InvalidCall, match=r'Service.method: write @limited\("5/minute"\)'):

        class Service:
            @limited
            def method(self) -> None: ...

    with pytest.raises(InvalidCall, match=r'view: write @limited\("5/minute"\)'):

        @limited
        @logged
        def view() -> None: ...


@pytest.mark.parametrize("kind", LIMITERS)
def test_a_limiters_decorator_without_a_key_raises_where_it_stands(kind):
    """It would be called with the arguments of the function, and take one of them for a function."""
    with pytest.raises(InvalidCall, match=r"write @limiter.limited\('k'\)"):

        @LIMITERS[kind].limited
        async def view() -> None: ...


@pytest.mark.parametrize("kind", [*KINDS, *LIMITERS])
def test_functions_of_limits_and_of_keys_are_taken(kind):
    """Of a module, made by another function, with another one around, in a class or without a name."""
    limited = KINDS[kind] if kind in KINDS else LIMITERS[kind].limited

    def here(*_: Any) -> str:
        return "5/minute"

    class Limits:
        @staticmethod
        def within(*_: Any) -> str:
            return "5/minute"

    every = (busy, made(), here, logged(here), functools.lru_cache(here), Limits.within, lambda *_: "5/minute")
    assert all(callable(limited(each)) for each in every)
