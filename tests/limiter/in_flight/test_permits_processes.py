"""Permits among real processes of one host: a process that dies at any instant frees its own permits only."""

from __future__ import annotations

import itertools
import os
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

import pytest

from headgate import Limiter
from headgate.engine import NATIVE
from headgate.layout import HEADER_WORDS, PARTICIPANTS, STRIPE_WORDS, STRIPES
from headgate.stores.shared import SharedStore
from headgate.testing import ManualClock
from tests.stores.test_shared import lock_bytes
from tests.support.forks import in_child
from tests.support.holding import PATIENCE, Crowd, Holder, damage
from tests.support.homes import home_of
from tests.support.processes import CONTEXT
from tests.support.servers import wait_until
from tests.support.sharing import words_of

pytestmark = pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
shares = pytest.mark.skipif(not NATIVE, reason="shared stores need the native engine")


def folder_of(url: str) -> Path:
    return Path(url.removeprefix("shared://").partition("?")[0])


def limiter_at(url: str, text: str) -> Limiter:
    return Limiter(text, store=url, on_error="raise")


def waits(limiter: Limiter, cost: int) -> object:
    decision = limiter.acquire("k", cost, timeout=1.0)
    limiter.release(decision)
    return decision.allowed


WAYS: dict[str, Callable[[Limiter, int], object]] = {
    "who takes": lambda limiter, cost: limiter.permit("k", cost).release(),
    "who waits": waits,
    "who looks": lambda limiter, cost: limiter.peek("k", cost).allowed,
    "who takes what there is": lambda limiter, cost: limiter.peek("k", 0).remaining == cost,
    "who lists": lambda limiter, cost: sum(each.units for each in limiter.holders("k")) == 20 - cost,
}


@shares
@pytest.mark.parametrize("way", WAYS)
def test_ten_killed_holders_free_their_permits_within_a_second(url, way):
    """One after the other; after each, all that the dead have held is free, and what the living hold is not."""
    limiter = limiter_at(url, "20 in flight")
    with ExitStack() as stack:
        holders = [stack.enter_context(Holder(url, "20 in flight")) for _ in range(10)]
        assert [holder.take(2) for holder in holders] == [2] * 10
        assert not limiter.permit("k")
        for dead, holder in enumerate(holders, 1):
            holder.kill()
            wait_until(partial(WAYS[way], limiter, 2 * dead), "what the dead have held is free", 1.0)
            assert not limiter.permit("k", 2 * dead + 1)


@shares
@pytest.mark.parametrize("end", [Holder.kill, Holder.exit], ids=["killed", "exits"])
def test_whoever_ends_without_a_release_frees_what_it_held_and_keeps_its_rates_charged(url, end):
    """The permits of a killed process are free within a second; its rates stay charged, and others keep theirs."""
    text = "3 in flight; 10/4 weeks by fixed-window"
    limiter = limiter_at(url, text)
    with Holder(url, text) as holder, Holder(url, text) as other:
        assert (holder.take(1, cost=2), other.take(1)) == (1, 1)
        end(holder)
        wait_until(lambda: limiter.peek("k", 2), "what it held is free", 1.0)
        assert [verdict.remaining for verdict in limiter.peek("k", 0).verdicts] == [2, 7]
        assert other.tell("release") == [True]
        assert limiter.peek("k", 0).verdicts[0].remaining == 3


@shares
def test_a_waiter_goes_on_when_the_holder_in_another_process_dies_or_releases(url):
    """A wait for a permit ends when another process is killed, and when it releases."""
    limiter = limiter_at(url, "1 in flight")
    with Holder(url, "1 in flight") as first, Holder(url, "1 in flight") as second:
        assert first.take() == 1
        assert not second.take()
        first.kill()
        with limiter.permit("k", timeout=1.0):
            assert not second.take()
        assert second.take() == 1
        assert not limiter.permit("k")
        second.tell("release")
        assert limiter.permit("k", timeout=1.0)


@shares
def test_who_takes_the_number_of_a_dead_process_does_not_hold_what_that_held(url):
    """Neither its pid nor its place in the roll stands for a process: the next to have the place is another one."""
    limiter = limiter_at(url, "3 in flight")
    limiter.peek("k")
    roll = folder_of(url) / "roll"
    with Holder(url, "3 in flight") as dead:
        assert dead.take(3) == 3
        dead.kill()
    wait_until(lambda: is_free(roll, 1), "the place is free")
    with Holder(url, "3 in flight") as heir:
        assert heir.tell("said") == []
        assert memoryview(roll.read_bytes()).cast("q")[:3].tolist() == [1, 2, 0]
        assert not is_free(roll, 1)
        assert limiter.take_up_to("k", 2).granted == 2
        assert (heir.take(2), heir.tell("own", "k")) == (1, [False, True])
        assert not limiter.hit("k")


def is_free(roll: Path, number: int) -> bool:
    """Whether nobody takes part under this number."""
    fd = os.open(roll, os.O_RDWR)
    try:
        lock_bytes(fd, number, 1)
    except BlockingIOError:
        return False
    finally:
        os.close(fd)
    return True


@shares
def test_a_stopped_holder_is_never_robbed(url):
    """A process that is stopped keeps its permits until it goes on and releases them."""
    limiter = limiter_at(url, "3 in flight")
    with Holder(url, "3 in flight") as holder:
        assert holder.take(2) == 2
        holder.stop()
        assert limiter.hit("k")
        assert not limiter.acquire("k", timeout=1.2)  # the files are looked after meanwhile, too
        assert [each.own for each in limiter.holders("k")] == [False, False, True]
        holder.go_on()
        assert holder.tell("release") == [True, True]
        assert limiter.peek("k", 0).remaining == 2


@pytest.mark.parametrize("kind", ["memory", pytest.param("shared", marks=shares)])
def test_a_forked_child_neither_holds_nor_frees_what_its_parent_holds(kind):
    """A child's release of its parent's permits frees nothing, and its own permits end with it."""
    with home_of(kind) as home:
        limiter = home.limiter("3 in flight")
        parents = [limiter.permit("k"), limiter.permit("k")]
        free = 3 if kind == "memory" else 1

        def work() -> list[object]:
            found = [limiter.peek("k", 0).remaining, [each.own for each in limiter.holders("k")]]
            ended = [permit.release() for permit in parents]
            own = limiter.permit("k")
            return [*found, ended, bool(own), limiter.peek("k", 0).remaining, own.release(), bool(limiter.hit("k"))]

        elsewhere = [] if kind == "memory" else [False, False]
        assert in_child(work) == [free, elsewhere, [True, True], True, free - 1, True, True]
        wait_until(lambda: limiter.peek("k", 0).remaining == 1, "what the child has kept is free", 1.0)
        assert [each.own for each in limiter.holders("k")] == [True, True]
        assert [permit.release() for permit in parents] == [True, True]
        assert limiter.peek("k", 0).remaining == 3


@shares
def test_a_child_that_outlives_its_parent_does_not_keep_the_parents_permits(url):
    """It has copies of the files by which its parent was known to live."""
    limiter = limiter_at(url, "5 in flight")
    with Holder(url, "5 in flight") as holder:
        assert holder.take(2) == 2
        child, taken = holder.tell("fork", 2)
        try:
            assert taken == 2
            assert limiter.peek("k", 0).remaining == 1
            holder.kill()
            wait_until(lambda: limiter.peek("k", 0).remaining == 3, "what the parent held is free", 1.0)
        finally:
            os.kill(child, signal.SIGKILL)
        wait_until(lambda: limiter.peek("k", 0).remaining == 5, "what the child held is free", 1.0)


@contextmanager
def stuck(path: Path, someone: Holder) -> Iterator[None]:
    """A live process seems to stand still in the middle of a decision, with every stripe in its hands."""
    assert someone.tell("said") == []  # it takes part
    roll = memoryview((path / "roll").read_bytes()).cast("q")
    number = max(each for each in range(PARTICIPANTS) if roll[each])
    tables = [words_of(file) for file in path.glob("*.table")]
    for words, stripe in itertools.product(tables, range(STRIPES)):
        words[HEADER_WORDS + stripe * STRIPE_WORDS] = (number + 1) << 32 | roll[number]
    yield
    for words, stripe in itertools.product(tables, range(STRIPES)):
        words[HEADER_WORDS + stripe * STRIPE_WORDS] = 0


@shares
@pytest.mark.parametrize("text", ["10 in flight", "10 in flight; 100/4 weeks"])
def test_a_release_that_a_stuck_table_does_not_take_is_made_with_the_next_question(url, text):
    """Nobody waits, and nothing is forgotten."""
    limiter, other = (Limiter(text, store=url, on_error="deny") for _ in range(2))
    first, second = limiter.permit("k", 2), limiter.permit("k", 3)
    with Holder(url, text) as someone:
        with stuck(folder_of(url), someone):
            assert [first.release(), first.release(), second.release("dropped")] == [True, False, True]
            assert limiter.hit("k").degraded
        assert other.peek("k", 0).verdicts[0].remaining == 5
        assert in_child(lambda: limiter.peek("k", 0).verdicts[0].remaining) == 5  # not the child's to give
        assert limiter.peek("k", 0).verdicts[0].remaining == 10
        assert other.peek("k", 0).verdicts[0].remaining == 10


@shares
def test_what_was_released_while_the_table_was_stuck_is_free_when_its_holder_dies(url):
    """A release that finds the table locked is made good when the process has ended."""
    limiter = limiter_at(url, "3 in flight")
    with Holder(url, "3 in flight") as holder, Holder(url, "3 in flight") as someone:
        assert holder.take(2) == 2
        with stuck(folder_of(url), someone):
            assert holder.tell("release") == [True, True]
        assert limiter.peek("k", 0).remaining == 1
        holder.kill()
        wait_until(lambda: limiter.peek("k", 0).remaining == 3, "it is free", 1.0)


@shares
def test_permits_of_a_store_that_was_removed_end_and_free_nobody_elses(tmp_path):
    """A store that was removed is made anew; old permits end there without effect."""
    path, clock = tmp_path / "store", ManualClock(time.time())
    limiter = Limiter("2 in flight", store=SharedStore(str(path), max_keys=1000, clock=clock), on_error="raise")
    old = limiter.permit("k")
    shutil.rmtree(path)
    clock.advance(1.1)
    assert limiter.permit("k", 2)  # it was made anew
    assert old.release()
    assert limiter.peek("k", 0).remaining == 0


@shares
def test_the_dead_do_not_keep_the_living_out_of_a_full_table(tmp_path):
    """More keys than fit, held by a process that is gone: the living keep their permits, and the dead make room."""
    path = tmp_path / "store"
    url = f"shared://{path}?max_keys=24"
    limiter = limiter_at(url, "4 in flight")
    with Holder(url, "4 in flight") as holder:
        for number in range(200):
            assert holder.take(1, f"dead {number}", cost=2) == 1
    wait_until(lambda: is_free(path / "roll", 1), "the holder is gone")
    for number in range(10):
        assert limiter.hit(f"alive {number}")
    assert [limiter.peek(f"alive {number}", 0).remaining for number in range(10)] == [3] * 10


@shares
def test_a_damaged_table_of_permits_gives_an_error_or_an_answer(url):
    """Random damage to the file never crashes a process."""
    process = CONTEXT.Process(target=damage, args=(folder_of(url), 60, 1))
    process.start()
    process.join(PATIENCE)
    assert process.exitcode == 0


@shares
def test_eight_processes_never_hold_more_than_the_limit(url, tmp_path):
    """At any instant, as a witness sees it that has nothing to do with the limiter."""
    with Crowd(url, "3 in flight", tmp_path / "witness", most=3, places=8) as crowd:
        crowd.start(8, seconds=1.0, least=13)
        crowd.join()
        assert crowd.violations == 0
        assert min(crowd.admitted) > 0 and sum(crowd.admitted) > 100
    limiter = limiter_at(url, "3 in flight")
    wait_until(lambda: limiter.peek("k", 3), "nobody holds anything", 1.0)
