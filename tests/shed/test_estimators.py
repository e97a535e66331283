"""Estimators: tables of samples, each line of which a person can check."""

from __future__ import annotations

from random import Random

import pytest

from headgate import InvalidCall
from headgate.clock import MILLISECOND, SECOND
from headgate.shed.estimators import AIMD, Adaptive, Fixed, Gradient2, Vegas, estimator_of

pytestmark = pytest.mark.engineless


def play(estimator, table):
    """Each row: requests in flight, milliseconds, outcome -> the limit afterwards."""
    for in_flight, latency, outcome, expected in table:
        mark = estimator.begin(0, in_flight)
        estimator.end(0, mark, latency * MILLISECOND, outcome)
        assert estimator.limit == estimator.undipped == expected, (in_flight, latency, outcome)


def test_fixed_stays():
    """A fixed limit learns nothing, not even from drops."""
    play(Fixed(7), [(7, 9_000, "dropped", 7), (1, 1, "success", 7)])


def test_aimd_adds_one_and_takes_a_tenth():
    """One more where half the limit is in use; a tenth less after a drop or more than 5 s; not below 20."""
    table = [
        (9, 50, "success", 20),
        (10, 50, "success", 21),
        (21, 50, "success", 22),
        (22, 5_000, "success", 23),
        (22, 5_001, "success", 20),
        (20, 50, "dropped", 20),
        (20, 50, "ignored", 20),
    ]
    play(AIMD(), table)
    play(AIMD(initial=100), [(100, 1, "dropped", 90), (90, 1, "dropped", 81), (81, 1, "success", 82)])


def test_vegas_keeps_a_short_queue():
    """Queue = limit x (1 - shortest/latency): up to 1 adds 6, under 3 adds 1, from 3 to 6 stays, above takes 1."""
    table = [
        (20, 100, "success", 20),  # the shortest so far
        (20, 100, "success", 26),  # no queue
        (20, 105, "success", 27),  # ceil(26 x 0.0476) = 2
        (20, 120, "success", 27),  # ceil(27 x 0.167) = 5
        (20, 200, "success", 26),  # 14
        (12, 200, "success", 26),  # less than half in use
        (26, 110, "dropped", 25),
        (26, 110, "ignored", 25),
    ]
    play(Vegas(random=Random(1)), table)


def test_vegas_forgets_the_shortest_latency_now_and_then():
    """After at most 30 samples for each request of the limit, the next latency is taken as the shortest."""
    vegas = Vegas(initial=1, random=Random(1))
    for _ in range(30):
        vegas.end(0, 0, 10, "success")
    vegas.end(0, 1, 1_000, "success")
    vegas.end(0, 1, 1_000, "success")
    assert vegas.limit > 1


def test_gradient2_follows_the_long_average():
    """0.8 limit + 0.2 (limit x gradient + 4): a steady latency adds 0.8, four times the average takes a tenth."""
    table = [(50, 100, "success", 50), (50, 100, "success", 51), (24, 100, "success", 51), (50, 100, "ignored", 51)]
    play(Gradient2(initial=50), table)
    steady = Gradient2(initial=100)
    for _ in range(11):
        steady.end(0, 100, 100, "success")
    assert steady.limit == 108
    steady.end(0, 108, 400, "success")  # gradient 0.5: 0.8 x 108.8 + 0.2 x (54.4 + 4)
    assert steady.limit == 98


def test_gradient2_warms_up_by_a_plain_mean():
    """The first ten samples are a mean of all, also where a long average far above the latency is lowered."""
    table = [
        (100, 1_000, "success", 100),
        (100, 100, "success", 101),  # the mean of 550 is more than twice as long, and is lowered for the next sample
        (100, 100, "success", 102),  # in the mean of ten it counts whole: 400, not 381
        (100, 900, "success", 100),  # gradient 1.5 x 525 / 900: 0.8 x 102.4 + 0.2 x (89.6 + 4)
    ]
    play(Gradient2(initial=100), table)


class Service:
    """A made-up service: the latency of a request depends on how many are in flight."""

    def __init__(self, estimator, latency):
        self.estimator, self.latency, self.now = estimator, latency, 0

    def cohorts(self, count, demand=10_000):
        """Serve full cohorts, one round of requests after the other."""
        for _ in range(count):
            before = self.estimator.limit, self.estimator.undipped
            for _ in range(400):
                size = min(self.estimator.limit, demand)
                marks = [self.estimator.begin(self.now, number + 1) for number in range(size)]
                if demand > size:
                    self.estimator.refuse(self.now)
                latency = self.latency(size)
                self.now += latency
                for mark in marks:
                    self.estimator.end(self.now, mark, latency, "success")
                if (self.estimator.limit, self.estimator.undipped) != before:
                    break


def queue_of(workers, work=50 * MILLISECOND):
    """The latency of a pool: requests beyond the workers wait."""
    return lambda in_flight: work * max(1, -(-in_flight // workers))


def test_adaptive_finds_the_workers_of_a_pool():
    """Where every request beyond 40 waits, the limit settles near 40, from below and from far above."""
    for initial in (2, 20, 500):
        estimator = Adaptive(initial=initial)
        Service(estimator, queue_of(40)).cohorts(60)
        assert 30 <= estimator.undipped <= 80, initial


def test_adaptive_grows_where_slowness_is_not_its_own():
    """A service that becomes ten times as slow at any number of requests is not given fewer."""
    estimator = Adaptive()
    service = Service(estimator, queue_of(1_000))
    service.cohorts(10)
    before = estimator.undipped
    service.latency = queue_of(1_000, 500 * MILLISECOND)
    service.cohorts(30)
    assert estimator.undipped >= before


def test_adaptive_backs_off_from_drops_and_comes_back():
    """More than one drop in ten halves the limit, down to 1 and not below; success doubles it, up to half of before."""
    estimator = Adaptive(initial=64)
    limits = []
    for outcome, rounds in (("dropped", 8), ("success", 6)):
        for _ in range(rounds):
            for _ in range(60):
                estimator.end(0, estimator.begin(0, 1), 50 * MILLISECOND, outcome)
            limits.append(estimator.limit)
    assert limits == [32, 16, 8, 4, 2, 1, 1, 1, 2, 4, 8, 16, 32, 32]


def test_adaptive_dips_for_three_hundredths_of_the_time():
    """Under lasting overload the limit is lowered to measure for at most 3 % of the time, beyond what was saved up."""
    estimator = Adaptive()
    service = Service(estimator, queue_of(4))
    dipped = 0
    while service.now < 1_000 * SECOND:
        before = service.now
        lowered = estimator.limit < estimator.undipped
        service.cohorts(1)
        dipped += (service.now - before) * lowered
    assert 0 < dipped <= 0.03 * service.now + 11 * SECOND


def test_adaptive_does_not_dip_while_it_only_observes():
    """With `dips` off, sheddable requests have the same limit as critical ones at every moment."""
    estimator = Adaptive()
    estimator.dips = False
    service = Service(estimator, queue_of(4))
    for _ in range(50):
        service.cohorts(1)
        assert estimator.limit == estimator.undipped


def test_a_request_that_never_ends_does_not_stop_the_measuring():
    """After 30 s the members of a cohort that have not ended count as dropped, and the next cohort opens."""
    estimator = Adaptive()
    marks = [estimator.begin(0, 20) for _ in range(60)]
    for mark in marks[7:]:
        estimator.end(0, mark, 1_000, "success")
    assert estimator.limit == 20
    estimator.begin(30 * SECOND, 1)
    assert estimator.limit == 20
    estimator.begin(30 * SECOND + 1, 1)
    assert estimator.limit == 10  # 7 of 60 are more than a tenth


def test_ignored_requests_say_nothing():
    """A cohort of ignored requests leaves the limit as it is."""
    estimator = Adaptive()
    for _ in range(200):
        estimator.refuse(0)
        estimator.end(0, estimator.begin(0, 20), 1, "ignored")
    assert estimator.limit == 20


@pytest.mark.parametrize("limit", [0, -1, True, "fast", "Adaptive"])
def test_a_limit_that_means_nothing_is_refused(limit):
    """A limit is a number from 1, or the name of an estimator."""
    with pytest.raises(InvalidCall, match="limit"):
        estimator_of(limit)


def test_names_and_numbers_mean_estimators():
    """A number is a fixed limit, a name one of the four, and an estimator itself."""
    own = Adaptive(initial=3)
    made = [type(estimator_of(each)) for each in (40, "adaptive", "aimd", "vegas", "gradient2")]
    assert made == [Fixed, Adaptive, AIMD, Vegas, Gradient2]
    assert estimator_of(own) is own


@pytest.mark.parametrize(("fleet", "limit"), [(6, 20), (8, 20), (17, 20), (19, 11)])
def test_a_fleet_that_refuses_first_does_not_make_a_queue_look_like_the_base(fleet, limit):
    """Requests that the fleet refuses end as ignored, and only a full process follows latency.

    A pool of 4 has more requests than it can serve at once. While the fleet admits fewer than 0.9 of the limit, the
    limit stays where it was and refuses none. It is found once the fleet lets the process fill up: the base is still
    the latency without a queue.
    """
    estimator = Adaptive()
    service = Service(estimator, queue_of(4))
    service.cohorts(1, demand=2)
    for _ in range(200):
        served = min(estimator.limit, fleet)
        marks = [estimator.begin(service.now, min(served, number + 1)) for number in range(2 * fleet)]
        for mark in marks[served:]:
            estimator.end(service.now, mark, 0, "ignored")
        if served < fleet:
            estimator.refuse(service.now)
        latency = service.latency(served)
        service.now += latency
        for mark in marks[:served]:
            estimator.end(service.now, mark, latency, "success")
    assert (estimator.undipped, estimator.base) == (limit, 50 * MILLISECOND)
    service.cohorts(20)
    assert 3 <= estimator.undipped <= 6
