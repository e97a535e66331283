"""Keys that are asked for more than their limit: one question in a tick, a share of what is left, honest waits."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from headgate import Lease
from tests.support.inside_leases import leases_held, ledger_of, set_chance
from tests.support.leasing import Bank, drain, open_bank, warm
from tests.support.servers import wait_until

pytestmark = pytest.mark.engineless

FAST = "1000/second burst 500"
TICK = 0.02


def short(bank: Bank, limit: str = FAST, spread: float = 0.0, **options):
    """A limiter whose key is short; its turns are later by this part of the most."""
    limiter = punctual(bank, limit, spread, **options)
    drain(limiter)
    return limiter


def punctual(bank: Bank, limit: str, spread: float = 0.0, **options):
    """A limiter that has not asked yet; its turns are later by this part of the most."""
    limiter = bank.limiter(limit, **options)
    set_chance(ledger_of(getattr(limiter, "limiter", limiter)), lambda: spread)
    return limiter


def overrun(bank: Bank, **options):
    """A limiter whose key was asked for a hundred times in each of its last three turns."""
    limiter = short(bank, **options)
    for _ in range(3):
        bank.clock.advance(TICK)
        warm(limiter, hits=100)
    return limiter


def crowd(bank: Bank, processes: int, limit: str = FAST) -> None:
    """Let this many other processes ask about the key once."""
    for _ in range(processes):
        bank.limiter(limit).hit("k")


def test_a_short_key_is_asked_about_once_in_a_tick(bank):
    """Ten ticks of 20 ms with a hundred calls each cost ten questions, and admit what came back in that time."""
    limiter = overrun(bank)
    admitted = 0
    with bank.asked(10):
        for _ in range(10):
            bank.clock.advance(TICK)
            admitted += warm(limiter, hits=100)
    assert admitted == 200


def test_a_refusal_tells_the_next_question_and_is_admitted_then(bank):
    """No caller is told 1 ms, after which the bucket has a unit but nobody asks; one microsecond early is refused."""
    limiter = short(bank)
    refused = limiter.hit("k")
    assert (refused.allowed, refused.remaining, refused.retry_us, refused.degraded) == (False, 0, 20_000, False)
    bank.clock.us += 19_999
    with bank.asked(0):
        assert limiter.hit("k").retry_us == 1
    bank.clock.us += 1
    with bank.asked(1):
        assert limiter.hit("k").allowed


def test_a_wait_is_as_long_as_the_bucket_needs(bank):
    """Where a unit comes back after the tick, or a cost needs several, callers are told the later time."""
    limiter = short(bank, "10/second burst 500")
    assert [limiter.hit("k", cost).retry_us for cost in (1, 2, 5)] == [100_000, 200_000, 500_000]
    assert limiter.hit("k", 501).never


def test_turns_are_given_out_to_many_processes_one_after_the_other(bank):
    """The first questions of 100 processes take two places of 0.6 ms each: the next process waits for 121 ms."""
    crowd(bank, 100)
    limiter = short(bank)
    assert limiter.hit("k").retry_us == 121_200


def test_a_process_that_comes_to_a_crowded_key_is_given_its_share_and_a_turn(bank):
    """Its first question takes the units of its two places, 12 of `10000/second`; then it waits for its turn."""
    limit = "10000/second"
    crowd(bank, 50, limit)
    limiter = punctual(bank, limit)
    with bank.asked(1):
        assert [limiter.hit("k").allowed for _ in range(14)] == [True] * 12 + [False] * 2
    assert limiter.hit("k").retry_us == 61_200


def test_a_process_whose_share_lasted_nearly_until_its_turn_asks_again(bank):
    """After three quarters of the time it is not refused: its demand is about its share."""
    limit = "10000/second"
    crowd(bank, 50, limit)
    limiter = punctual(bank, limit)
    assert warm(limiter, hits=12) == 12
    bank.clock.us += 46_000
    with bank.asked(1):
        assert limiter.hit("k").allowed


def test_a_question_before_the_turn_takes_no_place_of_others(server):
    """35 questions of one process at one instant do not make the key crowded for the next process."""
    with open_bank(server) as bank:
        limit = "39/hour by fixed-window"
        with bank.asked(35):
            assert warm(punctual(bank, limit), hits=35) == 35
        limiter = punctual(bank, limit)
        assert limiter.hit("k").allowed
        held = leases_held(ledger_of(limiter))["k"]
        assert (held.wait, held.crowded) == (20_000, False)


def test_the_turns_of_a_spent_window_begin_at_its_end(server):
    """The first process is told the end of the window, and the next ones are told later turns."""
    limit = "100/hour by fixed-window"
    with open_bank(server) as one, open_bank(server) as two, open_bank(server) as three:
        first, second, third = (punctual(bank, limit) for bank in (one, two, three))
        drain(first)
        told = [limiter.hit("k").retry_us for limiter in (first, second, third)]
        assert told == [800_000_000, 800_000_600, 800_001_800]


def test_a_process_that_had_enough_asks_at_the_end_of_a_spent_window(server):
    """It would ask then in any case. Processes that had less than they wanted wait for their turns after the end."""
    limit = "100/hour by fixed-window"
    with open_bank(server) as one, open_bank(server) as two, open_bank(server) as three:
        limiter = punctual(one, limit)
        warm(limiter, hits=5)
        two.plain(limit).hit("k", 100 - two.charged(limit))
        told = [punctual(bank, limit).hit("k").retry_us for bank in (two, three)]
        assert told == [800_000_000, 800_001_200]
        drain(limiter)
        assert limiter.hit("k").retry_us == 800_000_000


def test_the_turns_of_a_used_up_sliding_window_begin_when_it_has_units(server):
    """The first process that asks is told when a unit comes back, and the next ones are told later turns."""
    limit = "100/hour by sliding-window"
    with open_bank(server) as one, open_bank(server) as two, open_bank(server) as three:
        one.plain(limit).hit("k", 100)
        told = [punctual(bank, limit).hit("k").retry_us for bank in (one, two, three)]
        assert told == [800_000_001, 800_001_201, 800_002_401]


def test_a_turn_comes_sooner_if_a_small_burst_would_overflow(bank):
    """A bucket that is full in 20 ms is asked for in a third of that."""
    limiter = short(bank, "1000/second burst 20")
    assert limiter.hit("k").retry_us == 6_666


def test_nodes_that_run_short_together_do_not_ask_together(bank):
    """Between two questions there are one to two ticks, by chance."""
    limiter = short(bank, spread=0.5)
    assert limiter.hit("k").retry_us == 30_000
    bank.clock.advance(0.03)
    drain(limiter)
    assert limiter.hit("k").retry_us == 30_000


def test_one_node_takes_all_that_came_back_and_several_share_it(bank):
    """Of 20 units in a tick a lone node takes 20; if 10 are there, others ask too, and a question takes 5."""
    limiter = overrun(bank)
    bank.clock.advance(TICK)
    assert warm(limiter, hits=100) == 20
    bank.clock.advance(TICK)
    bank.plain(FAST).hit("k", 10)
    assert warm(limiter, hits=100) == 5


def test_a_cost_is_taken_whole_or_not_at_all(bank):
    """A share that is smaller than the cost of the caller does not split it."""
    limiter = overrun(bank)
    bank.clock.advance(TICK)
    bank.plain(FAST).hit("k", 10)
    assert limiter.hit("k", 8).allowed
    bank.clock.advance(TICK)
    left = 500 - bank.charged(FAST)
    refused = limiter.hit("k", left + 1)
    assert (refused.allowed, refused.remaining) == (False, left)
    assert 500 - bank.charged(FAST) == left


def test_smaller_costs_may_ask_for_what_a_larger_one_left(bank):
    """Of a bucket that has 3 units a cost of 5 is refused for a tick, and a cost of 2 is asked for at once."""
    limiter = overrun(bank)
    bank.clock.us += 23_000
    bank.plain(FAST).hit("k", 20)
    with bank.asked(1):
        assert [limiter.hit("k", cost).allowed for cost in (5, 5, 4, 7)] == [False] * 4
    with bank.asked(1):
        assert limiter.hit("k", 2).allowed


def test_a_key_that_has_enough_again_is_leased_as_before(bank):
    """After a second without calls nobody is refused, and few questions are asked."""
    limiter = short(bank)
    bank.clock.advance(1)
    before = bank.trips()
    assert warm(limiter, hits=300) == 300
    assert bank.trips() - before < 20


@pytest.mark.parametrize("remember", [0, 1])
def test_a_tick_does_not_depend_on_remembered_refusals(server, remember):
    """A short key is refused without a question for a tick also where no refusal of the server is remembered."""
    with open_bank(server, remember_refusals=remember) as bank:
        limiter = short(bank)
        with bank.asked(0):
            assert warm(limiter, hits=100) == 0


def test_a_caller_that_does_not_wait_is_refused_without_a_question_too(bank):
    """`acquire` with a timeout of 0 decides now, as `hit` does; one that waits reserves its place at the server."""
    limiter = overrun(bank)
    with bank.asked(0):
        assert [limiter.acquire("k", timeout=0).allowed for _ in range(10)] == [False] * 10
    with bank.asked(1):
        assert limiter.reserve("k", max_wait=1).delay == 0.001


def test_units_that_are_given_back_are_asked_for_at_once(bank):
    """A refund by key and a reset end the wait for the next question."""
    limiter = short(bank)
    limiter.refund("k", 5)
    assert limiter.hit("k").allowed
    drain(limiter)
    limiter.reset("k")
    assert limiter.hit("k").remaining == 499


def test_a_spent_window_is_refused_until_it_ends_as_before(bank):
    """Windows have no tick: their units come back at once, at their end."""
    limiter = bank.limiter("100/hour by fixed-window")
    assert drain(limiter) == 100
    with bank.asked(0):
        assert limiter.hit("k").retry_after == 800.0


def test_a_small_limit_is_exact(bank):
    """`5/minute`: five hits, five questions, and then the wait for the next unit."""
    limiter = bank.limiter("5/minute")
    with bank.asked(6):
        assert [limiter.hit("k").remaining for _ in range(5)] == [4, 3, 2, 1, 0]
        assert limiter.hit("k").retry_after == 12.0
    with bank.asked(0):
        assert limiter.hit("k").retry_after == 12.0


def test_while_one_thread_asks_others_are_refused_without_a_question(server, proxy):
    """A server that is slow has one question under way, not one for each thread."""
    with open_bank(server, url=proxy.url) as bank, ThreadPoolExecutor(1) as pool:
        limiter = short(bank)
        bank.clock.advance(TICK)
        charged = bank.charged(FAST)
        proxy.hold()
        asking = pool.submit(limiter.hit, "k")
        wait_until(lambda: bank.charged(FAST) > charged, "the units are charged")
        with bank.asked(0):
            assert [limiter.hit("k").retry_us for _ in range(10)] == [20_000] * 10
            bank.clock.us += 25_000
            assert not limiter.hit("k").allowed
        proxy.release()
        assert asking.result().allowed
        assert threading.active_count() < 10


def test_an_answer_to_a_single_unit_does_not_end_a_tick(server):
    """The answer to a thread that asked for one unit arrives after the one that said that the key is short."""
    with open_bank(server) as bank:
        limiter = short(bank)
        ledger_of(limiter).saw("k", bank.plain(FAST).peek("k", 0))
        assert limiter.hit("k").retry_us == 20_000


def test_several_limits_refuse_by_the_one_that_is_short(bank):
    """The bucket is short, the window is not: the decision says so."""
    limiter = short(bank, "1000/second burst 500; 100000/hour by fixed-window as hourly")
    refused = limiter.hit("k")
    assert [(verdict.allowed, verdict.retry_us) for verdict in refused.verdicts] == [(False, 20_000), (True, 0)]
    assert str(refused.binding) == FAST


def test_a_key_that_is_asked_for_often_is_counted_before_it_is_leased(bank):
    """Three hits report the process, so that it knows the fleet before its first lease."""
    limiter = bank.limiter("1/hour burst 30", lease=Lease(floor=50))
    bank.server.command("CONFIG", "RESETSTAT")
    warm(limiter, hits=3)
    assert bank.server.info("commandstats")["cmdstat_zadd"]["calls"] == 1
