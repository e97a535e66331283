"""Methods of limiters can be overridden by subclasses, and replaced on their class by mocks."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any
from unittest import mock

import pytest

from headgate import AsyncLimiter, Decision, Limiter
from headgate.testing import frozen
from tests.support.awaiting import awaited

VERBS = ("hit", "peek", "take_up_to", "acquire", "permit", "reserve", "decide", "release", "refund", "reset")


class Lenient(Limiter):
    """Staff is not limited."""

    def hit(self, key: str, *given: Any, **named: Any) -> Any:
        return None if key == "staff" else super().hit(key, *given, **named)


class LenientLater(AsyncLimiter):
    """The same, awaited."""

    async def hit(self, key: str, *given: Any, **named: Any) -> Any:
        return None if key == "staff" else await super().hit(key, *given, **named)


def test_a_method_that_a_subclass_overrides_is_called(home):
    """Its `super()` decides and counts as a plain limiter does, also after the store was replaced for a while."""
    limiter = Lenient("2/minute", store=home.limiter("2/minute").store)
    assert [limiter.hit("staff") for _ in range(3)] == [None] * 3
    with frozen(limiter):
        assert limiter.hit("staff") is None
    assert [bool(limiter.hit("ann")) for _ in range(3)] == [True, True, False]
    assert (limiter.counts().allowed, limiter.counts().refused) == (2, 1)
    assert limiter.peek("ann").remaining == 0


@awaited
async def test_a_coroutine_that_a_subclass_overrides_is_called():
    """As in `Limiter`; methods that are not overridden still tell if they are not awaited."""
    limiter = LenientLater("2/minute")
    assert await limiter.hit("staff") is None
    assert [bool(await limiter.hit("ann")) for _ in range(3)] == [True, True, False]
    with pytest.raises(ValueError, match="write `await` in front of peek"):
        bool(limiter.peek("ann"))


@pytest.mark.parametrize("verb", VERBS)
def test_a_method_that_is_replaced_on_the_class_is_replaced_for_every_limiter(home, verb):
    """Limiters that were made before have the mock too; after its end each decides as it did."""
    before = home.limiter("2/minute")
    with mock.patch.object(Limiter, verb, return_value="replaced") as replaced:
        made = home.limiter("2/minute")
        assert getattr(before, verb)("k") == getattr(made, verb)("k") == "replaced"
        assert replaced.call_count == 2
    assert [bool(each.hit("k")) for each in (before, before, before)] == [True, True, False]
    assert isinstance(made.hit("other"), Decision)


def test_a_subclass_may_be_abstract():
    """`ABC` is a base beside the limiter, and a method that is still abstract keeps the class from being used."""

    class Abstract(Limiter, ABC):
        @abstractmethod
        def hit(self, key: str, *given: Any, **named: Any) -> Any: ...

    class Concrete(Abstract):
        def hit(self, key: str, *given: Any, **named: Any) -> Any:
            return Limiter.hit(self, key, *given, **named)

    with pytest.raises(TypeError, match="abstract"):
        Abstract("1/minute")  # type: ignore[abstract]
    assert Concrete("1/minute").hit("k").remaining == 0


def test_a_mock_with_a_signature_gets_the_limiter():
    """`autospec` gives it the limiter as its first argument, as a method gets it."""
    limiter: Any = Limiter("1/minute")
    with mock.patch("headgate.Limiter.hit", autospec=True, return_value="replaced") as replaced:
        assert limiter.hit("k", cost=2) == "replaced"
    replaced.assert_called_once_with(limiter, "k", cost=2)


@awaited
async def test_a_coroutine_that_is_replaced_on_the_class_is_replaced_for_every_limiter():
    """A limiter for event loops is mocked by the same words."""
    limiter = AsyncLimiter("1/minute")
    for verb in ("hit", "peek", "acquire", "reserve", "decide", "reset"):
        with mock.patch.object(AsyncLimiter, verb, return_value="replaced"):
            assert await getattr(limiter, verb)("k") == "replaced"
    assert [bool(await limiter.hit("k")) for _ in range(2)] == [True, False]


def test_a_mock_of_a_subclass_leaves_its_base_alone():
    """Only limiters of the class that was changed are changed."""
    plain: Any = Limiter("1/minute")
    lenient: Any = Lenient("1/minute")
    with mock.patch.object(Lenient, "peek", return_value="replaced"):
        assert lenient.peek("k") == "replaced"
        assert plain.peek("k").allowed
    assert lenient.peek("k").allowed
    with mock.patch.object(Limiter, "peek", return_value="replaced"):
        assert lenient.peek("k") == "replaced"
