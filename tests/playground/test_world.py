"""The world of a page: virtual time, six lanes, and numbers that are counted once, in whole microseconds."""

from __future__ import annotations

import json

import pytest

from headgate import InvalidCall, Limiter
from headgate.clock import HandClock
from headgate.errors import HeadgateError
from headgate.playground.world import MOST_A_FRAME, World

pytestmark = pytest.mark.engineless

NAMES = ["token-bucket", "leaky-bucket", "fixed-window", "sliding-window", "sliding-window/6", "sliding-log"]


def run(world, seconds, frames=30):
    """Let real time pass; all frames of it."""
    told = []
    for _ in range(round(seconds * frames)):
        world.step(1 / frames)
        told.append(world.frame())
    return told


def quiet(limit="10/10s"):
    world = World(limit)
    world.set_traffic("clicks")
    return world


def most(world):
    return {lane.name: lane.most for lane in world.lanes}


def test_the_seam_attack_doubles_the_fixed_window_and_nothing_else():
    """Ten before the end of a window and ten after it: 20 pass a fixed window, 10 the log; the caption says so."""
    world = quiet()
    world.attack()
    run(world, 5)
    assert most(world) == {
        "token-bucket": 10, "leaky-bucket": 4, "fixed-window": 20, "sliding-window": 11, "sliding-window/6": 10,
        "sliding-log": 10,
    }  # fmt: skip
    assert world.caption.text == (
        "fixed-window let 20 pass within 10 s, 2.0 times the limit: it forgot the first 10 when the window ended. "
        "sliding-log let 10 pass."
    )


@pytest.mark.parametrize("limit", ["10/10s", "3/1s", "7/minute", "60/minute", "1/100ms", "1000/day"])
def test_an_attack_meets_the_same_answers_at_every_limit(limit):
    """Twice the limit in a fixed window, exactly the limit in a log, whatever is asked before."""
    world = World(limit)
    run(world, 0.5)
    world.attack()
    for _ in range(3000):
        world.step(1 / 30)
        world.frame()
        if most(world)["fixed-window"] == 2 * world.limit.amount:
            break
    assert most(world)["fixed-window"] == 2 * world.limit.amount
    assert most(world)["sliding-log"] == world.limit.amount


@pytest.mark.parametrize("traffic", ["poisson", "steady", "batches", "seam", "impatient"])
def test_answers_are_those_of_a_limiter_that_is_asked_directly(traffic):
    """The same times through plain limiters: every answer of every lane is the same."""
    world = World("10/10s")
    world.set_traffic(traffic)
    world.set_speed(20)
    asked = [(world.start + time, frame["lanes"], at) for frame in run(world, 4) for at, time in enumerate(frame["q"])]
    assert len(asked) > 20
    for place, name in enumerate(NAMES):
        if name == "leaky-bucket":
            continue
        clock = HandClock()
        limiter = Limiter(f"10/10s by {name}", clock=clock)
        for time, lanes, at in asked:
            clock.us = time
            assert limiter.hit("you").allowed is (lanes[place]["a"][at] == "1"), (name, time)


def test_the_queue_lets_requests_leave_evenly_and_drops_what_does_not_fit():
    """Of 15 at once 10 wait, one leaves each second, five are dropped."""
    world = quiet()
    world.click(15)
    frames = run(world, 12)
    queue = world.lanes[1]
    assert (queue.passed, queue.refused, queue.most) == (10, 5, 10)
    left = [time for frame in frames for time in frame["lanes"][1].get("d", [])]
    assert left == [second * 1_000_000 + left[0] for second in range(10)]
    assert frames[-1]["lanes"][1]["w"] == 9_000_000


def test_the_curve_never_accuses_the_exact_log():
    """In no bin of any traffic has the log more than its limit, and its peak is the most that is shown."""
    world = World("60/minute")
    world.set_rate(5)
    world.set_speed(50)
    peaks = [value for frame in run(world, 6) for value in frame["lanes"][5]["c"][1::2]]
    assert max(peaks) == 60 == world.lanes[5].most


def test_numbers_that_were_sent_once_add_up():
    """Every request is in exactly one frame, drawn one by one or counted in bins, and the sums are the totals."""
    world = World("100/1s")
    world.set_rate(1000)
    frames = run(world, 3)
    world.set_speed(10)
    frames += run(world, 3)
    for place, lane in enumerate(world.lanes):
        yes = no = 0
        for frame in frames:
            told = frame["lanes"][place]
            yes += told.get("a", "").count("1") + sum(told.get("b", [])[1::3])
            no += told.get("a", "").count("0") + sum(told.get("b", [])[2::3])
        assert (yes, no) == (lane.admitted, lane.refused)
    assert any("b" in frame["lanes"][0] for frame in frames)


@pytest.mark.parametrize(("rate", "speed"), [(1000, 1), (1000, 200), (0.1, 200), (50, 30)])
def test_a_frame_is_small_and_bounded(rate, speed):
    """At most 8 KB, and a bounded number of requests: time runs slower where more would come."""
    world = World("10/10s")
    world.set_rate(rate)
    world.set_speed(speed)
    world.click(1000)
    asked = 0
    for _ in range(90):
        (frame,) = run(world, 1 / 30)
        assert len(json.dumps(frame, separators=(",", ":"))) < 8_000
        total = world.lanes[5].admitted + world.lanes[5].refused
        assert total - asked <= MOST_A_FRAME
        asked = total
    assert asked > 1000


def test_a_burst_is_told():
    """The sentence after a burst has the number that each algorithm admitted."""
    world = quiet()
    world.click(12)
    run(world, 0.2)
    assert world.caption.text == (
        "Of 12 requests at once passed: token-bucket 10, leaky-bucket 10, fixed-window 10, sliding-window 10, "
        "sliding-window/6 10 and sliding-log 10."
    )


def test_an_answer_can_be_read_whole():
    """The words of one answer; an answer that is too old is not made up."""
    world = quiet("1/10s")
    world.click(2)
    run(world, 0.2)
    assert world.answer(5, 1) == "at 0 s: sliding-log, request 1: yes; 0 of 1 left, all of them in 10 s"
    assert world.answer(5, 2) == "at 0 s: sliding-log, request 2: no; the next yes is in 10 s"
    assert world.answer(1, 2) == "at 0 s: leaky-bucket, request 2: dropped, the queue is full"
    with pytest.raises(InvalidCall, match="too old"):
        world.answer(5, 99)


def test_a_pause_stops_time():
    """Nothing moves while the world is paused."""
    world = World()
    run(world, 1)
    world.paused = True
    now = world.now
    assert all(not frame["q"] for frame in run(world, 1))
    assert world.now == now


def test_a_log_is_replayed_and_its_gaps_are_short():
    """Two visits, a day apart: the gap takes about a second, and the requests come at their own distances."""
    world = World("2/10s")
    day = 24 * 3600 * 1_000_000
    world.set_log([0, 1_000_000, 2_000_000, day, day + 1_000_000])
    frames = run(world, 12)
    times = [time for frame in frames for time in frame["q"]]
    assert [time - times[0] for time in times] == [0, 1_000_000, 2_000_000, day, day + 1_000_000]
    assert (world.lanes[5].passed, world.lanes[5].refused) == (4, 1)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("10/10s by gcra", "every algorithm runs at once"),
        ("10/10s; 5/1s", "one limit at a time"),
        ("5 in flight", "every algorithm runs at once"),
        ("5000/10s", "1 to 1,000"),
        ("5/2 days", "1 day"),
        ("ten", "ten"),
        ("", "limit"),
    ],
)
def test_mistakes_in_the_limit_are_told_and_change_nothing(text, words):
    """The old limit goes on."""
    world = World("10/10s")
    with pytest.raises(HeadgateError, match=words):
        world.restart(text)
    assert str(world.limit) == "10/10 seconds"
    run(world, 0.2)


@pytest.mark.parametrize(
    "act",
    [
        lambda world: world.set_traffic("rush hour"),
        lambda world: world.set_traffic("log"),
        lambda world: world.set_rate(0),
        lambda world: world.set_rate(float("nan")),
        lambda world: world.set_speed(1e9),
        lambda world: world.click(0),
        lambda world: world.click(10**9),
    ],
)
def test_values_out_of_range_are_refused(act):
    """A page of another program can send anything."""
    with pytest.raises(InvalidCall):
        act(World())


def test_the_same_seed_shows_the_same_world():
    """A world is repeatable."""
    one, other = World(seed=7), World(seed=7)
    assert run(one, 2) == run(other, 2)
