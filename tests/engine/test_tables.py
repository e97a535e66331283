"""Which table a state is in: limits share tables whatever their names, and states grow with their limits."""

from __future__ import annotations

import fcntl
import os
import random
import threading
from pathlib import Path

import pytest

from headgate import Decision, Limiter, MemoryStore, StoreError
from headgate.stores.shared import SharedStore
from headgate.stores.shared.survey import survey
from headgate.testing import ManualClock, ReferenceStore
from tests.engine.conftest import NOW, needs_shared
from tests.support import sharing
from tests.support.inside import tables_of


def tables(store) -> int:
    return len(tables_of(store))


def test_limits_of_many_names_are_one_table(store):
    """A thousand endpoints, rules or customers have a budget each, and their states lie in one table."""
    limiters = [Limiter(f"2/hour as endpoint{n}", store=store, on_error="raise") for n in range(1_000)]
    assert [limiter.hit("ann").remaining for limiter in limiters] == [1] * 1_000
    assert limiters[7].hit("ann", 2).allowed is False
    limiters[7].reset("ann")
    assert (limiters[7].hit("ann", 2).remaining, limiters[8].hit("ann").remaining) == (0, 0)
    assert (tables(store), store.keys()) == (1, 1_000)


def test_named_and_unnamed_limits_of_one_decision_count_apart(store):
    """Two limits that differ in nothing but the name, asked about one key in one decision."""
    limiter = Limiter("5/hour; 3/hour as b; 4/hour as c", store=store, on_error="raise")
    assert [verdict.remaining for verdict in limiter.hit("k", cost=2).verdicts] == [3, 1, 2]
    assert tables(store) == 1


def test_a_larger_plan_finds_what_a_smaller_one_counted(store, clock):
    """A log that outgrows its table is carried to a larger one with its stamps, and read there by any plan."""
    large = "30/hour by sliding-log"
    limiter = Limiter("3/hour by sliding-log", store=store, on_error="raise")
    limiter.hit("k")
    clock.advance(600)
    limiter.hit("k", 2)
    assert limiter.hit("k", 27, limit=large).remaining == 0
    refused = limiter.hit("k", limit=large)
    assert (refused.allowed, refused.retry_after) == (False, 3_000.0)
    clock.advance(3_000)
    assert limiter.hit("k", limit=large).remaining == 0
    refused = limiter.hit("k")
    assert (refused.allowed, refused.remaining, refused.retry_after) == (False, 0, 600.0)


@pytest.mark.parametrize("first", ["free", "pro"])
def test_plans_of_permits_come_in_any_order(store, first):
    """Whether a free user or a pro user comes first, both get their numbers, and an upgrade keeps what is held."""
    limiter = Limiter("2 in flight", store=store, on_error="raise")
    plans = {"free": None, "pro": "20 in flight"}
    for name in (first, "pro" if first == "free" else "free"):
        for _ in range(3):
            limiter.hit(name, limit=plans[name])
    assert [limiter.peek(name, 0, limit=plan).remaining for name, plan in plans.items()] == [0, 17]
    held = limiter.hit("changes", 2)
    assert limiter.hit("changes", 18, limit="20 in flight").remaining == 0
    limiter.release(held)
    assert limiter.peek("changes", 0, limit="20 in flight").remaining == 2
    assert [each.units for each in limiter.holders("changes")] == [18]


def test_a_block_is_carried_with_its_state(store, clock):
    """A key that was shut under a small plan stays shut under a large one."""
    limiter = Limiter("2/minute by sliding-log block 10m", store=store, on_error="raise")
    limiter.hit("k", 2)
    assert limiter.hit("k").retry_after == 600.0
    clock.advance(100)
    assert limiter.hit("k", limit="50/minute by sliding-log block 10m").retry_after == 500.0


PLANS = {
    "logs": [f"{amount}/minute by sliding-log" for amount in (1, 3, 17, 40, 200)],
    "logs with blocks": [f"{amount}/minute by sliding-log block 7s" for amount in (2, 9, 64)],
    "permits": [f"{amount} in flight" for amount in (1, 2, 9, 33)],
}


@pytest.mark.parametrize("kind", PLANS)
@pytest.mark.parametrize("home", ["memory", pytest.param("shared", marks=needs_shared)])
def test_changing_plans_answer_as_the_reference_does(tmp_path, kind, home):
    """Random plans, keys, costs, give-backs and waits: every answer equals that of states without a size."""
    for seed in range(12):
        chance = random.Random(seed)
        clock = ManualClock(NOW)
        made = MemoryStore(clock=clock) if home == "memory" else SharedStore(str(tmp_path / str(seed)), clock=clock)
        both = [Limiter(PLANS[kind][0], store=store, on_error="raise") for store in (made, ReferenceStore(clock=clock))]
        charged: list[list[Decision]] = []
        for _ in range(150):
            clock.advance(chance.choice([0, 0, 0.001, 1, 7, 20]))
            key, plan = chance.choice("abc"), chance.choice(PLANS[kind])
            if charged and chance.random() < 0.25:
                pair = charged.pop(chance.randrange(len(charged)))
                for limiter, decision in zip(both, pair, strict=True):
                    (limiter.release if kind == "permits" else limiter.refund)(decision)
                continue
            act = chance.choice(["hit", "hit", "peek", "take_up_to"])
            cost = chance.choice([0, 1, 1, 2, 5, 30]) if act != "take_up_to" else chance.choice([1, 4, 50])
            pair = [getattr(limiter, act)(key, cost, limit=plan) for limiter in both]
            told = [[(*each[:4], each.mark) for each in decision.verdicts] for decision in pair]
            assert told[0] == told[1], (seed, act, key, cost, plan)
            if pair[0].allowed and act != "peek":
                charged.append(pair)


@needs_shared
def test_processes_with_other_numbers_share_one_budget(tmp_path):
    """A rolling deploy: some processes know 200 a month and some 300, and what they admit together is exact."""
    url = f"shared://{tmp_path}/store?max_keys=100"
    few, many = "200/4 weeks by sliding-log", "300/4 weeks by sliding-log"
    done = sharing.hammer_each(url, [few, many, few, many], hits=150)
    assert [each["degraded"] for each in done] == [0] * 4
    assert sum(each["admitted"] for each in done) == 300
    assert not Limiter(many, store=url, on_error="raise").hit("k")


@needs_shared
def test_a_table_that_another_process_makes_is_found_at_once(tmp_path, clock):
    """A key that another process carried to a larger table, or placed there first, is not begun anew in a small one."""
    small = Limiter("3 in flight", store=SharedStore(str(tmp_path / "store"), clock=clock), on_error="raise")
    small.hit("old")
    large = Limiter("30 in flight", store=SharedStore(str(tmp_path / "store"), clock=clock), on_error="raise")
    large.hit("old", 2)
    large.hit("new", 3)
    assert (small.hit("old").allowed, small.hit("new").allowed) == (False, False)
    assert (large.peek("old", 0).remaining, large.peek("new", 0).remaining) == (27, 27)


@needs_shared
def test_a_store_never_takes_more_than_its_bytes(tmp_path, clock):
    """Each new table takes a quarter of what is left; the last ones are small, and what has no room is refused."""
    store = SharedStore(str(tmp_path / "store"), clock=clock)
    for n in range(1, 24):
        Limiter(f"10/{n} hours", store=store, on_error="raise").hit("k")
    sizes = [table.size for table in survey(store.path).tables]
    assert max(sizes) <= 8 * 2**20
    assert sum(sizes) <= store.max_bytes == 32 * 2**20
    assert min(table.max_keys for table in survey(store.path).tables) >= 1_000
    with pytest.raises(
        StoreError, match="no room for 10/day in the shared store.* 16384 bytes are left; raise max_bytes"
    ):
        Limiter("10/24 hours", store=store)


@needs_shared
def test_what_has_no_room_for_a_thousand_keys_is_refused_with_the_bytes(tmp_path):
    """A log of 4,000 stamps keeps 32 KB a key: the error says so, and no file is made."""
    store = SharedStore(str(tmp_path / "store"))
    with pytest.raises(StoreError, match=r"keeps 32776 bytes a key, so 1002 keys need \d+ bytes.*raise max_bytes"):
        Limiter("4000 per 4 weeks by sliding-log", store=store)
    assert sorted(os.listdir(store.path)) == ["lock", "meta", "roll"]
    Limiter("4000 per 4 weeks by sliding-log", store=SharedStore(str(tmp_path / "more"), max_bytes=64 * 2**20))
    Limiter("4000 per 4 weeks by sliding-log", store=SharedStore(str(tmp_path / "few"), max_keys=100))


@needs_shared
@pytest.mark.parametrize(("amount", "advice"), [(58, "raise max_bytes"), (59, "raise max_bytes, or choose")])
def test_a_log_is_advised_to_be_a_window_only_where_that_keeps_less(tmp_path, amount, advice):
    """A log of 58 stamps keeps less than the 512 bytes of `sliding-window/60`, and one of 59 keeps more."""
    store = SharedStore(str(tmp_path / "store"), max_bytes=2**20)
    with pytest.raises(StoreError) as told:
        for n in range(1, 100):
            Limiter(f"{amount}/{n} hours by sliding-log", store=store)
    assert str(told.value).rpartition("; ")[2].partition(" `")[0] == advice


@needs_shared
def test_processes_that_start_together_build_one_file(tmp_path):
    """A process that finds a table missing waits for the one that makes it, instead of building another."""
    store = SharedStore(str(tmp_path / "store"))
    folder = os.open(os.path.join(store.path, "lock"), os.O_RDWR)
    fcntl.flock(folder, fcntl.LOCK_EX)
    opening = threading.Thread(target=Limiter, args=("10/minute",), kwargs={"store": store})
    opening.start()
    opening.join(0.1)
    assert opening.is_alive()
    assert sorted(os.listdir(store.path)) == ["lock", "meta", "roll"]
    fcntl.flock(folder, fcntl.LOCK_UN)
    opening.join(10)
    os.close(folder)
    assert len(list(Path(store.path).glob("*.table"))) == 1


@needs_shared
def test_a_full_shared_table_says_so_once_in_each_process(tmp_path, clock, caplog):
    """The line in the log names the limit and the keys that fit."""
    limiter = Limiter("10/minute", store=SharedStore(str(tmp_path / "store"), max_keys=6, clock=clock))
    for number in range(40):
        limiter.hit(str(number))
    assert limiter.store.evictions() == 32
    (said,) = [record.getMessage() for record in caplog.records]
    assert "(such as 10/minute) is full: one of its 8 keys was dropped" in said


def test_offences_are_remembered_among_many_keys(store, clock):
    """Keys that were blocked keep their slots after the block, until the memory is over, while others come."""
    limiter = Limiter("1/second block 1s, 10s within 1h", store=store, on_error="raise")
    offenders = [f"offender{n}" for n in range(50)]
    for key in offenders:
        limiter.hit(key)
        assert limiter.hit(key).retry_after == 1.0
    clock.advance(60)
    for n in range(2_000):
        limiter.hit(f"k{n}")
    for key in offenders:
        limiter.hit(key)
    assert [limiter.hit(key).retry_after for key in offenders] == [10.0] * 50
