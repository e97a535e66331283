"""Sixteen threads on one limiter: exact on every build, also on one without the GIL, where they do run at one time."""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import chain
from typing import Any, TypeVar

import pytest

from headgate import Decision, Limiter
from headgate.engine import NATIVE, Decider
from headgate.engine.lease_cache import LeasedTokens, leased_tokens_for
from headgate.limit import Limit
from headgate.stores.leases.grants import Grant
from headgate.stores.shared import SharedStore
from headgate.testing import ReferenceStore
from tests.engine.conftest import NOW, needs_shared
from tests.support import side_by_side

MANY = 16
T = TypeVar("T")
TEXTS = [
    "300/hour",
    "300/hour block 1m",
    "300/hour by fixed-window",
    "300/hour by sliding-window/6",
    "300/hour by sliding-log",
    "300 in flight",
    "300/hour; 330/hour by sliding-log as b; 360 in flight",
]


@pytest.fixture
def rounds(store):
    """How often to do it: threads of the native engine meet only if each does much."""
    return 2 if isinstance(store, ReferenceStore) or not NATIVE else 60


@pytest.fixture(autouse=True)
def _often():
    """With the GIL, threads take turns much more often than they would."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(interval)


def together(work: Callable[[int], T]) -> list[T]:
    """Call this in many threads that begin at one time, each with its number; return the results."""
    begin, results, errors = threading.Barrier(MANY), [], []

    def run(number: int) -> None:
        begin.wait()
        try:
            results.append(work(number))
        except BaseException as error:
            errors.append(error)

    with side_by_side([partial(run, number) for number in range(MANY)]):
        pass
    assert errors == []
    return results


@contextmanager
def meanwhile(work: Callable[[], object]) -> Iterator[None]:
    """Call this again and again in a few threads, until the block has ended."""
    over, errors = threading.Event(), []

    def run() -> None:
        try:
            while not over.is_set():
                work()
        except BaseException as error:
            errors.append(error)

    with side_by_side([run] * 4):
        try:
            yield
        finally:
            over.set()
    assert errors == []


@pytest.mark.skipif(not sysconfig.get_config_var("Py_GIL_DISABLED"), reason="this Python has the GIL")
def test_the_native_engine_leaves_the_gil_off():
    """A module that does not declare that it can do without the GIL would bring it back for the whole program."""
    asked = "import sys, headgate.engine; print(headgate.engine.NATIVE, sys._is_gil_enabled())"
    ran = subprocess.run([sys.executable, "-W", "error", "-c", asked], capture_output=True, text=True, check=True)
    assert ran.stdout == f"{NATIVE} False\n"


@pytest.mark.parametrize("text", TEXTS)
def test_threads_admit_exactly_the_limit(store, text, rounds):
    """Of 320 units for each key, asked for in three ways, exactly the 300 that fit are admitted."""
    limiter = Limiter(text, store=store, on_error="raise")

    def ask(key: str) -> list[int]:
        ones = [limiter.hit(f"hit {key}").granted for _ in range(20)]
        some = [limiter.take_up_to(f"up to {key}", 5).granted for _ in range(4)]
        return [sum(ones), sum(some), sum(limiter.acquire(f"now {key}", 2, timeout=0).granted for _ in range(10))]

    asked = together(lambda _: [ask(f"{number}") for number in range(rounds)])
    assert [[sum(ways) for ways in zip(*each, strict=True)] for each in zip(*asked, strict=True)] == [
        [300] * 3
    ] * rounds


@pytest.mark.parametrize("text", TEXTS)
def test_threads_that_give_back_leave_everything(store, text, rounds):
    """After a hit and a refund, or a permit, in every thread, the whole limit is there."""
    limiter = Limiter(text, store=store, on_error="raise")

    def use(number: int) -> None:
        for _ in range(10 * rounds):
            limiter.refund(limiter.hit("k", 1 + number % 3))
            with limiter.permit("k") as permit:
                pass
            limiter.refund(permit.decision)  # the rates too, which stay charged when a permit ends

    together(use)
    assert [verdict.remaining for verdict in limiter.peek("k").verdicts] == [limit.burst for limit in limiter.limits]


@pytest.mark.parametrize("text", ["1000/hour", "1000 in flight", "1000/hour; 1200/hour by sliding-log as b"])
def test_a_decision_is_given_back_once_by_all_threads(store, text, rounds):
    """Each thread gives the same decisions back, in parts and whole, and reads them meanwhile: they come back once."""
    limiter = Limiter(text, store=store, on_error="raise")
    spent = [limiter.hit(f"{number % 9}", 10) for number in range(10 * rounds)]
    shown = [(each.costs, each.verdicts) for each in spent]

    def give_back(number: int) -> list[Any]:
        for decision in spent:
            limiter.refund(decision, *([1 + number % 3] if number % 2 else []))
        return [(each.costs, each.verdicts) for each in spent]

    assert together(give_back) == [shown] * MANY
    assert [limiter.peek(f"{number}").remaining for number in range(9)] == [1_000] * 9


def test_reservations_of_threads_never_share_an_instant(store, rounds):
    """Ten leave at once and the others one by one, a tenth of a second apart, whichever threads reserve them."""
    limiter = Limiter("10/second", store=store, on_error="raise")
    found = together(lambda _: [limiter.reserve("k").decision.retry_us for _ in range(10 * rounds)])
    assert sorted(chain.from_iterable(found)) == [0] * 9 + [100_000 * number for number in range(160 * rounds - 9)]


def test_no_more_permits_are_held_than_the_limit(store):
    """Threads that wait for one of three permits, and count who is inside."""
    limiter = Limiter("3 in flight", store=store, on_error="raise")
    inside: list[int] = []

    def enter(number: int) -> int:
        most = 0
        for _ in range(20):
            with limiter.permit("k", timeout=60):
                inside.append(number)
                most = max(most, len(inside))
                inside.remove(number)
        return most

    assert max(together(enter)) <= 3
    assert (limiter.holders("k"), limiter.peek("k").remaining) == ([], 3)


def test_a_permit_ends_once_however_many_threads_end_it(store, rounds):
    """Of all the calls of `release`, one says that it released the permit."""
    limiter = Limiter("1000 in flight", store=store, on_error="raise")
    permits = [limiter.permit("k") for _ in range(16 * rounds)]
    ended = together(lambda _: [permit.release() for permit in permits])
    assert [sum(calls) for calls in zip(*ended, strict=True)] == [1] * len(permits)
    assert limiter.peek("k").remaining == 1_000


def test_a_full_table_drops_keys_while_it_is_cleared(store, clock, rounds):
    """Threads that bring new keys into a small table, some of them under two limits, while others clear it."""
    small = type(store)(*([f"{store.path}-small"] if hasattr(store, "path") else []), max_keys=64, clock=clock)
    limiter = Limiter("5/hour by fixed-window; 7/hour as b", store=small, on_error="raise")
    with meanwhile(lambda: small.clear("default")):
        together(lambda number: [limiter.hit(f"{number} {at}") for at in range(20 * rounds)])
    small.clear("default")
    assert sum(together(lambda _: sum(limiter.hit("k").allowed for _ in range(5)))) == 5


@needs_shared
def test_files_are_removed_while_threads_ask(tmp_path, clock):
    """The store is made again by whichever thread notices first, and then counts exactly."""
    store = SharedStore(str(tmp_path / "store"), clock=clock)
    limiters = [Limiter(text, store=store) for text in ("1000/hour", "100/hour by sliding-log", TEXTS[-1])]

    def ask() -> None:
        for limiter in limiters:
            limiter.refund(limiter.hit("busy"))

    with meanwhile(ask):
        for _ in range(40):
            shutil.rmtree(store.path, ignore_errors=True)
            clock.advance(2)
            limiters[0].hit("k")
    clock.advance(2)
    found = list(chain.from_iterable(together(lambda _: [limiters[0].hit("new") for _ in range(100)])))
    assert (sum(each.allowed for each in found), any(each.degraded for each in found)) == (1_000, False)


def test_threads_spend_each_token_of_a_lease_once(store):
    """While a lease follows the other, no token is spent twice, and each decision tells the numbers of one lease."""
    limits = (Limit.parse("1000/hour by fixed-window"),)
    bound = store.bind("node", limits)
    tokens = (leased_tokens_for if NATIVE and type(bound) is Decider else LeasedTokens)(bound, lambda *_: None)
    lease, spent, unused = tokens.open("k"), [], 0
    until = round(NOW * 1e6) + 1

    def spend() -> None:
        decision: Decision | None = tokens.hit("k")
        if decision is not None:
            spent.append(decision)

    with meanwhile(spend):
        for serial in range(1, 301):
            unused += tokens.drain(lease)
            grant = Grant("k", 20, ((0, 0),), 0, until, (1_000 * serial,), (until + serial,))
            tokens.begin(lease, grant, 0, serial)
    assert len(spent) + unused + tokens.drain(lease) == 300 * 20
    told = [(each.remaining // 1_000, each.reset_us - 1, each.verdicts[0].mark[1]) for each in spent]
    assert [len(set(numbers)) for numbers in told] == [1] * len(spent)
