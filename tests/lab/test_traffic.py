"""Made traffic: how much comes, when, from whom, and what limits make of it."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import islice

import pytest

from headgate import InvalidCall, Limiter
from headgate.clock import DAY, HOUR, MINUTE, SECOND, WEEK, HandClock
from headgate.lab.traffic import TRAFFIC, Scene

pytestmark = pytest.mark.engineless

MANY = Scene(amount=100, clients=20, seed=7, for_us=10 * MINUTE)
EVERY_KIND = pytest.mark.parametrize("name", TRAFFIC)


def made(name, scene):
    """All requests of a scene that ends."""
    return list(TRAFFIC[name].requests(scene))


def refused(name, scene, algorithm):
    """How many requests a limit refuses when it also tells its answers."""
    clock = HandClock()
    limiter = Limiter(f"{scene.amount}/{scene.period_us // 1000} ms by {algorithm}", clock=clock)
    requests, answer, count = TRAFFIC[name].requests(scene), None, 0
    while True:
        try:
            clock.us, key, cost = requests.send(answer)
        except StopIteration:
            return count
        answer = limiter.hit(key, cost).allowed
        count += not answer


@EVERY_KIND
def test_requests_come_in_order_and_end_in_time(name):
    """Every kind is sorted by time, lies between start and end, and has keys and costs that a limiter takes."""
    scene = replace(MANY, start_us=1_700_000_000 * SECOND)
    requests = made(name, scene)
    times = [time for time, _, _ in requests]
    assert times == sorted(times)
    assert scene.start_us <= times[0]
    assert times[-1] < scene.end_us
    assert all(type(time) is int and key and cost == 1 for time, key, cost in requests)


@EVERY_KIND
def test_the_same_seed_is_the_same_traffic(name):
    """Chance comes from the seed alone; the seam and nothing else has no chance in it."""
    assert made(name, MANY) == made(name, MANY)
    assert (made(name, MANY) == made(name, replace(MANY, seed=8))) == (name == "seam")


@EVERY_KIND
def test_traffic_without_an_end_is_the_same_traffic(name):
    """A scene without `for_us` goes on. It begins with the same requests; at the end, some may be early."""
    bounded = made(name, MANY)
    endless = list(islice(TRAFFIC[name].requests(replace(MANY, for_us=None)), len(bounded) + 100))
    assert endless[: len(bounded) - 20] == bounded[:-20]
    assert endless[-1][0] > MANY.end_us


@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("steady", 20_000),
        ("poisson", 19_990),
        ("batches", 20_000),
        ("seam", 20_000),
        ("impatient", 29_242),
        ("diurnal", 11_512),
        ("zipf", 19_990),
        ("rotating", 19_990),
    ],
)
def test_the_rate_is_kept(name, count):
    """20 clients at 100 a minute for 10 minutes: 20,000 on average; a night has fewer, and retries are more."""
    assert len(made(name, MANY)) == count


def test_a_rate_may_be_given():
    """Requests a second of all clients together: 1,000 for 10 s is 10,000, each 20 ms of one of 20 clients."""
    requests = made("steady", replace(MANY, rate=1_000, for_us=10 * SECOND))
    assert len(requests) == 10_000
    assert set(Counter(key for _, key, _ in requests).values()) == {500}


def test_a_steady_client_is_late_or_early_by_a_twentieth():
    """10 a minute is one in 6 s, give or take 0.3 s, and lateness does not add up."""
    requests = made("steady", Scene(for_us=HOUR))
    late = [time - 6 * SECOND * turn for turn, (time, _, _) in enumerate(requests)]
    assert len(requests) == 600
    assert -300_000 <= min(late) < -290_000 < 290_000 < max(late) <= 300_000


@pytest.mark.parametrize(
    ("algorithm", "count"),
    [
        ("fixed-window", 360),
        ("sliding-window", 499),
        ("sliding-log", 1_197),
        ("sliding-window/60", 1_025),
        ("token-bucket", 0),
    ],
)
def test_a_client_at_exactly_its_limit(algorithm, count):
    """A day of polls each 6 s, give or take 0.3 s, under 10/minute: 14,400 requests, and only the bucket takes all."""
    day = Scene(seed=1, for_us=DAY)
    assert len(made("steady", day)) == 14_400
    assert refused("steady", day, algorithm) == count


def test_batches_come_at_one_instant():
    """Each client sends its 100 at one instant, once a minute, and not at the same as the others."""
    instants = Counter((time, key) for time, key, _ in made("batches", MANY))
    assert set(instants.values()) == {100}
    assert len({time for time, _ in instants}) == 20 * 10
    first, second = sorted(time for time, key in instants if key == "client-3")[:2]
    assert second - first == MINUTE


@pytest.mark.parametrize("period", [MINUTE, DAY, WEEK])
@pytest.mark.parametrize("clients", [1, 3])
def test_the_seam_passes_twice_the_amount(period, clients):
    """A fixed window admits all of 2 x 10 within 2 s, of each account; a log admits half; weeks begin on Mondays."""
    scene = Scene(period_us=period, clients=clients, for_us=4 * period)
    requests = made("seam", scene)
    assert Counter(key for _, key, _ in requests) == {f"account-{n}": 40 for n in range(clients)}
    for each in range(2):
        burst = [time for time, _, _ in requests[each * 20 * clients : (each + 1) * 20 * clients]]
        assert burst[-1] - burst[0] < 2 * SECOND
    assert refused("seam", scene, "fixed-window") == 0
    assert refused("seam", scene, "sliding-log") == 20 * clients


def test_a_seam_may_have_begun():
    """Traffic that starts half a second before the end of a window has half of the burst before it."""
    times = [time for time, _, _ in made("seam", Scene(start_us=MINUTE - SECOND // 2, for_us=MINUTE))]
    assert times == [MINUTE + turn * SECOND // 10 for turn in range(-5, 10)]


def test_impatient_clients_hear_the_answer():
    """Told yes, they send each request once; told no, each comes six times, about 0.1 s apart."""
    scene = Scene(clients=5, for_us=HOUR, seed=3)
    answered = {}
    for answer in (True, False):
        requests = TRAFFIC["impatient"].requests(scene)
        next(requests)
        sent = 1
        try:
            while requests.send(answer):
                sent += 1
        except StopIteration:
            answered[answer] = sent
    fresh = answered[True]
    assert 2_800 < fresh < 3_200
    assert 6 * fresh - 6 <= answered[False] <= 6 * fresh


def test_untold_impatient_clients_are_refused_by_a_log():
    """Where nobody tells the answers, the trace is the one of clients that an exact sliding log has answered."""
    scene = Scene(clients=5, for_us=HOUR, seed=3)
    clock = HandClock()
    limiter = Limiter("10/minute by sliding-log", clock=clock)
    told = []
    requests, answer = TRAFFIC["impatient"].requests(scene), None
    while True:
        try:
            clock.us, key, cost = requests.send(answer)
        except StopIteration:
            break
        told.append((clock.us, key, cost))
        answer = limiter.hit(key, cost).allowed
    assert told == made("impatient", scene)


def test_a_day_has_a_peak_and_a_night():
    """The hour around 16:00 UTC has nine times as many requests as the one around 4:00; the day has its average."""
    requests = made("diurnal", Scene(amount=100, for_us=DAY, seed=2))
    hours = Counter((time + HOUR // 2) // HOUR for time, _, _ in requests)
    assert len(requests) == 143_776
    assert max(hours, key=hours.__getitem__) in (15, 16, 17)
    assert 8 < hours[16] / hours[4] < 10


def test_a_few_clients_send_most():
    """By Zipf's law the first of 20 clients sends twice as much as the second and 20 times as much as the last."""
    counts = Counter(key for _, key, _ in made("zipf", replace(MANY, for_us=HOUR)))
    assert 1.9 < counts["client-0"] / counts["client-1"] < 2.1
    assert 19 < counts["client-0"] / counts["client-19"] < 21


def test_rotating_keys_stay_below_every_limit():
    """No key is ever refused by its limit, however many requests the attackers send in all."""
    scene = replace(MANY, rate=500)
    counts = Counter(key for _, key, _ in made("rotating", scene))
    assert max(counts.values()) == 100
    assert len(counts) > sum(counts.values()) / 101
    assert refused("rotating", scene, "sliding-log") == 0


@pytest.mark.parametrize(
    ("field", "value", "problem"),
    [
        ("amount", 0, "amount is a whole number from 1; got 0"),
        ("period_us", 0, "period_us is a whole number from 1; got 0"),
        ("clients", -1, "clients is a whole number from 1; got -1"),
        ("rate", 0.0, "rate is a number of requests a second, from 0.000001 to 1000000; got 0.0"),
        ("rate", 1e-7, "rate is a number of requests a second, from 0.000001 to 1000000; got 1e-07"),
        ("rate", float("nan"), "rate is a number of requests a second, from 0.000001 to 1000000; got nan"),
    ],
)
def test_wrong_numbers_are_refused(field, value, problem):
    """A scene says which of its numbers cannot be, when it is made."""
    with pytest.raises(InvalidCall) as caught:
        Scene(**{field: value})
    assert str(caught.value) == problem
