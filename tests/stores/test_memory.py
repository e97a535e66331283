"""The memory store: bounded, flood-proof, safe under threads and forks."""

from __future__ import annotations

import gc
import os
import re
import signal
import sys
import threading
from functools import partial

import pytest

from headgate import InvalidCall, InvalidLimit, Limiter, MemoryStore, StoreError
from headgate.engine import NATIVE
from headgate.testing import ManualClock
from headgate.testing.suite import EVERY_ALGORITHM
from tests.support import side_by_side
from tests.support.flight import in_child

BLOCKED = "10/minute block 1h"
FLOOD = 10_000 if NATIVE else 4_000


@pytest.mark.parametrize("text", [f"10/hour by {algorithm}" for algorithm in EVERY_ALGORITHM] + [BLOCKED])
def test_a_flood_of_keys_does_not_free_a_heavy_user(text, clock):
    """Many times `max_keys` random keys stay inside the bound, and a key that has used its quota has still used it."""
    store = MemoryStore(max_keys=1_000, clock=clock)
    limiter = Limiter(text, store=store)
    heavy = [f"heavy:{n}" for n in range(20)]
    for key in heavy:
        limiter.hit(key, 10)
        assert not limiter.hit(key)
    slots = 0
    for n in range(FLOOD):
        assert limiter.hit(f"flood:{n}")
        if n == FLOOD // 2:
            slots = store.bytes()
    assert not any(limiter.hit(key) for key in heavy)
    assert store.keys() <= 1_344  # max_keys / 0.75, in whole sets of 8
    assert store.bytes() == slots
    assert store.evictions() > FLOOD - 2_000


def test_a_full_table_drops_a_light_user_before_a_heavy_one_that_is_free_sooner(clock):
    """The quota in use decides, and the nearest reset only between users of the same quota."""
    limiter = Limiter("10/minute by sliding-log", store=MemoryStore(max_keys=6, clock=clock))
    limiter.hit("heavy", 9)
    clock.advance(30)
    for number in range(100):
        limiter.hit(f"light:{number}")
    assert limiter.peek("heavy").remaining == 1


def test_keys_that_are_as_new_make_room_without_eviction(clock):
    """When the first thousand have expired, the next thousand take their places."""
    store = MemoryStore(max_keys=1_000, clock=clock)
    limiter = Limiter("10/minute", store=store)
    for generation in range(5):
        for n in range(700):
            limiter.hit(f"{generation}:{n}")
        clock.advance(60)
    assert store.evictions() == 0


def test_the_first_forgotten_key_is_said_once(caplog, clock):
    """Which limit, how many keys fit, and what twice as many would take; a key with nothing in use is not missed."""
    store = MemoryStore(max_keys=12, clock=clock)
    limiter = Limiter("10/minute as rides", store=store)
    for round_ in range(5):
        for number in range(6):
            limiter.hit(f"{round_}:{number}")
        clock.advance(6)
    assert (store.evictions(), caplog.text) == (0, "")
    for number in range(60):
        limiter.hit(f"flood:{number}")
    assert store.evictions() > 1
    (said,) = [record.getMessage() for record in caplog.records]
    assert said.startswith(
        "the table of token-bucket minute limits (such as 10/minute as rides) is full: one of its 16 keys"
    )
    assert said.endswith("Twice as many keys (max_keys=24) take 512 bytes")


def test_max_keys_are_remembered():
    """Every one of `max_keys` keys keeps its count: at a load of 3/4 next to none is lost."""
    count = 50_000 if NATIVE else 10_000
    store = MemoryStore(max_keys=count, clock=ManualClock(1e9))
    limiter = Limiter("10/hour", store=store)
    for n in range(count):
        limiter.hit(f"key:{n}", 10)
    forgotten = sum(limiter.peek(f"key:{n}").allowed for n in range(count))
    assert forgotten == store.evictions() <= 5


def test_peeking_and_refusing_insert_nothing():
    """Only what is charged takes memory."""
    store = MemoryStore(clock=ManualClock(1e9))
    limiter = Limiter("10/hour", "20/day", store=store)
    for n in range(100):
        limiter.peek(f"peek:{n}")
        limiter.hit(f"never:{n}", 11)
        limiter.refund(f"refund:{n}", 1)
        limiter.reset(f"reset:{n}")
    assert store.keys() == 0


@pytest.mark.parametrize(
    ("text", "bytes_a_key"),
    [("10/hour", 16), ("10/hour by fixed-window", 24), ("10/hour by sliding-window", 32)]
    + [("10/hour by sliding-window/60", 512), ("100/hour by sliding-log", 840), ("10/hour block 1m", 24)],
)
def test_memory_is_what_was_agreed(text, bytes_a_key):
    """max_bytes is three quarters full of slots of known size at max_keys; more keys than fit are refused by name."""
    fitting = 10 * 2**20 * 3 // (bytes_a_key * 4)
    store = MemoryStore(max_bytes=10 * 2**20, clock=ManualClock(1e9))
    limiter = Limiter(text, store=store)
    for n in range(fitting if NATIVE and fitting < 20_000 else 2_000):
        limiter.hit(f"key:{n}")
    assert store.bytes() <= 10 * 2**20 + 65_536
    with pytest.raises(InvalidLimit, match=f"keeps {bytes_a_key} bytes a key.*lower max_keys to {fitting} or raise"):
        Limiter(text, store=MemoryStore(max_keys=fitting + 1, max_bytes=10 * 2**20))
    Limiter(text, store=MemoryStore(max_keys=fitting, max_bytes=10 * 2**20))


@pytest.mark.parametrize(
    ("keys", "told"), [(None, "1 key needs 43702 bytes"), (1, "1 key needs"), (2, "2 keys need 87403")]
)
def test_the_bytes_that_an_error_tells_are_enough(keys, told):
    """A memory with the bytes that the message tells has room; no message proposes room for no key."""
    with pytest.raises(InvalidLimit, match=told) as raised:
        Limiter("4000/day by sliding-log", store=MemoryStore(max_keys=keys, max_bytes=1000))
    assert "max_keys to 0" not in str(raised.value)
    needed = int(str(raised.value).split(" bytes and max_bytes")[0].split()[-1])
    assert Limiter("4000/day by sliding-log", store=MemoryStore(max_keys=keys, max_bytes=needed)).hit("ann")


@pytest.mark.parametrize("text", ["10/hour", "10/hour by fixed-window", "100/hour by sliding-log"])
def test_the_bytes_that_an_error_asks_for_are_enough(text):
    """A store of as many bytes as the message tells has room for the keys; with one byte a key less it has not."""
    with pytest.raises(InvalidLimit) as caught:
        Limiter(text, store=MemoryStore(max_keys=3_000_000, max_bytes=2**20))
    (needed,) = map(int, re.findall(r"need (\d+) bytes", str(caught.value)))
    Limiter(text, store=MemoryStore(max_keys=3_000_000, max_bytes=needed))
    with pytest.raises(InvalidLimit):
        Limiter(text, store=MemoryStore(max_keys=3_000_000, max_bytes=needed - 3_000_000))


def test_a_log_of_a_million_works(clock):
    """The largest log: eight megabytes a key, and still exact."""
    limiter = Limiter("1000000/day by sliding-log", clock=clock)
    assert limiter.hit("k", 999_999)
    clock.advance(1)
    assert limiter.hit("k")
    refused = limiter.hit("k", 2)
    assert (refused.allowed, refused.retry_after) == (False, 86_399.0)
    clock.advance(86_399)
    assert limiter.hit("k", 999_999).remaining == 0


@pytest.mark.parametrize(
    "bounds", [{"max_keys": 0}, {"max_keys": True}, {"max_keys": 1.5}, {"max_bytes": -1}, {"max_bytes": "1"}]
)
def test_bounds_are_whole_numbers(bounds):
    """Nonsense bounds are refused where they are given."""
    with pytest.raises(InvalidCall, match="must be a whole number from 1"):
        MemoryStore(**bounds)


def test_a_store_has_at_most_256_tables():
    """Limits made up at run time cannot grow a store without end."""
    store = MemoryStore()
    for n in range(1, 257):
        Limiter(f"1/{n} s", store=store)
    with pytest.raises(StoreError, match="at most 256 tables"):
        Limiter("1/257 s", store=store)
    assert Limiter("2/7 s as another", store=store).hit("k")


@pytest.mark.parametrize("interval", [0.005, 1e-6])
@pytest.mark.parametrize("text", ["1000/day", "1000/day by sliding-window/6", "1000/day by sliding-log; 5000/week"])
def test_threads_admit_exactly_the_limit(text, interval):
    """8 threads on one key, switching as often as Python allows."""
    limiter = Limiter(text, clock=ManualClock(1e9))
    admitted: list[int] = []
    start = threading.Barrier(8)

    def hammer() -> None:
        start.wait()
        admitted.append(sum(limiter.hit("k").allowed for _ in range(400)))

    before = sys.getswitchinterval()
    sys.setswitchinterval(interval)
    try:
        with side_by_side([hammer] * 8):
            pass
    finally:
        sys.setswitchinterval(before)
    assert sum(admitted) == 1000


def test_threads_refund_a_decision_once():
    """Eight threads that give back the same decision give it back once."""
    limiter = Limiter("100/day by fixed-window", clock=ManualClock(1e9))
    limiter.hit("k", 50)
    spent = limiter.hit("k", 10)
    with side_by_side([partial(limiter.refund, spent)] * 8):
        pass
    assert limiter.peek("k", 0).remaining == 50


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_a_fork_takes_its_own_copy_and_no_held_lock():
    """A child forked while another thread decides can decide too; the parent's counts are its own."""
    limiter = Limiter("1000000/day", clock=ManualClock(1e9))
    stop = threading.Event()

    def hammer() -> None:
        while not stop.is_set():
            limiter.hit("busy")

    with side_by_side([hammer]):
        told = [in_child(lambda: limiter.hit("k").remaining) for _ in range(20)]
        stop.set()
    assert told == ["999999"] * 20
    assert limiter.hit("k").remaining == 999_999


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_fork_while_others_give_back_can_give_back_too():
    """A child forked while threads give back holds no lock of theirs: it gives back, and ends."""
    limiter = Limiter("1000000/day by fixed-window", clock=ManualClock(1e9))
    stop = threading.Event()

    def hammer() -> None:
        while not stop.is_set():
            limiter.refund(limiter.hit("busy"))

    threads = [threading.Thread(target=hammer) for _ in range(4)]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    for thread in threads:
        thread.start()
    try:
        for _ in range(25):
            spent = limiter.hit("k", 5)
            child = os.fork()
            if child == 0:
                signal.alarm(5)  # which ends a child that hangs
                limiter.refund(spent)
                os._exit(0 if limiter.hit("k", 0).remaining == 1_000_000 else 1)
            limiter.refund(spent)
            assert os.waitpid(child, 0)[1] == 0
    finally:
        stop.set()
        sys.setswitchinterval(interval)
        for thread in threads:
            thread.join()


@pytest.mark.skipif(not NATIVE, reason="the pure engine's memory is Python's own")
def test_tables_give_their_memory_back():
    """A thousand stores made and dropped leave no mapping behind."""

    def resident() -> int:
        with open("/proc/self/statm") as statm:
            return int(statm.read().split()[0])

    def churn() -> None:
        store = MemoryStore(max_keys=200_000, clock=ManualClock(1e9))
        limiter = Limiter("10/hour", store=store)
        for n in range(3_000):
            limiter.hit(f"key:{n}")
        store.clear("default")
        assert store.keys() == 0

    if not os.path.exists("/proc/self/statm"):
        pytest.skip("no /proc to read the size of this process from")
    churn()
    gc.collect()
    before = resident()
    for _ in range(100):
        churn()
    gc.collect()
    assert resident() - before < 1_000  # pages; one leaked table a round would be some 2,000
