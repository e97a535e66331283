"""Sentinels that do not answer: the others are asked, within one deadline, and it is remembered which one answered."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

from headgate import StoreError
from headgate.stores.redis import Transition
from tests.support.clusters import SentinelSet
from tests.support.faults import DEADLINE, SLACK, at_most
from tests.support.proxy import Proxy
from tests.support.servers import wait_until
from tests.support.unreachable import PATIENTLY, SOON, WAYS, opened

pytestmark = pytest.mark.engineless


@pytest.fixture(scope="module")
def group() -> Iterator[SentinelSet]:
    with SentinelSet() as group:
        yield group


@pytest.fixture
def watchers(group: SentinelSet) -> Iterator[list[Proxy]]:
    """The ways to its sentinels."""
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(Proxy(sentinel)) for sentinel in group.sentinels]


def url(watchers: list[Proxy], service: str = SentinelSet.service) -> str:
    return f"redis+sentinel://{','.join(f'127.0.0.1:{each.port}' for each in watchers)}/{service}"


def asked(watchers: list[Proxy]) -> list[int]:
    return [each.connections for each in watchers]


@pytest.mark.parametrize("way", WAYS)
def test_a_silent_sentinel_is_asked_once_and_one_that_answered_first(way, watchers):
    """New connections ask the second sentinel alone."""
    watchers[0].hold()
    with opened(way, url(watchers), **PATIENTLY) as (limiter, hang_up):
        assert not limiter.hit("k").degraded
        assert asked(watchers) == [1, 1, 0]
        for times in (2, 3, 4):
            hang_up()
            assert not limiter.hit("k").degraded
            assert asked(watchers) == [1, times, 0]


@pytest.mark.parametrize("way", WAYS)
def test_a_dead_sentinel_delays_nobody_and_when_the_next_one_dies_the_third_is_asked(way, watchers):
    """Each new connection finds the primary by the next sentinel that lives."""
    watchers[0].refuse()
    with opened(way, url(watchers), **PATIENTLY) as (limiter, hang_up):
        assert not limiter.hit("k").degraded
        watchers[1].refuse()
        hang_up()
        assert not limiter.hit("k").degraded
        assert asked(watchers) == [0, 1, 1]


@pytest.mark.parametrize("way", WAYS)
def test_while_no_sentinel_answers_the_primary_is_where_it_was(way, watchers):
    """A new connection goes to the last known primary."""
    with opened(way, url(watchers), **PATIENTLY) as (limiter, hang_up):
        assert not limiter.hit("k").degraded
        for each in watchers:
            each.hold()
        hang_up()
        assert not limiter.hit("k").degraded


@pytest.mark.parametrize("fault", [Proxy.hold, Proxy.refuse])
@pytest.mark.parametrize("way", WAYS)
def test_sentinels_that_are_all_away_cost_a_few_decisions_their_time_until_they_are_back(way, watchers, fault):
    """Of each decision all three get a share, and none is asked twice."""
    seen: list[Transition] = []
    for each in watchers:
        fault(each)
    shared = 4 * SOON  # by three, each of which gets its turn on a busy machine too
    with opened(way, url(watchers), connect_timeout=shared, on_transition=seen.append) as (limiter, _):
        with at_most(shared + 2 * DEADLINE + SLACK):
            assert limiter.hit("k").degraded
            each_once = [1, 1, 1] if fault is Proxy.hold else [0, 0, 0]
            wait_until(lambda: asked(watchers) == each_once, "each was asked once")
            assert all(limiter.hit("k").degraded for _ in range(2))
        assert [each.available for each in seen] == [False]
        with at_most(SLACK):
            assert all(limiter.hit("k").degraded for _ in range(100))
        for each in watchers:
            each.release()
            each.accept()
        wait_until(lambda: len(seen) > 1, "the primary is found", 5)
        assert not limiter.hit("k").degraded


@pytest.mark.parametrize("way", WAYS)
def test_sentinels_that_know_no_such_service_are_an_error_that_says_so(way, watchers):
    """All three are asked, and the error names the service."""
    with (
        opened(way, url(watchers, "other"), on_error="raise") as (limiter, _),
        pytest.raises(StoreError, match="no sentinel knows the primary of other"),
    ):
        limiter.hit("k")
    assert asked(watchers) == [1, 1, 1]
