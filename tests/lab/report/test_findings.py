"""Sentences of the report: what the plots show, and the examples that define a wrong answer."""

from __future__ import annotations

from dataclasses import replace

from headgate import Limit
from headgate.clock import SECOND
from headgate.lab.comparison import Wrong
from headgate.lab.comparison.limits import compared
from headgate.lab.comparison.measure import Measurement
from headgate.lab.logs import Request
from headgate.lab.report import findings
from tests.lab.report.samples import COMPARISON, LIMITS, SERIES

NOON = 1_456_012_800 - 1_456_012_800 % 43_200 + 43_200
"""A noon in UTC, in seconds."""


def measured(limit, *times):
    """What a limit does with requests of one client at these seconds after noon."""
    candidates, remarks = compared([limit])
    measurement = Measurement(candidates)
    measurement.take([Request(int((NOON + each) * SECOND), "client", 1, "GET", "/", 200) for each in times])
    [found] = measurement.result(None, remarks).limits
    return found


def test_the_example_of_the_same_past_is_true():
    """60 at 12:00:59 and 60 at 12:01:00: a fixed window wrongly passes the second 60."""
    found = measured("60/minute by fixed-window", *[59] * 60, *[60] * 60)
    assert (found.refused, found.same_past) == (0, Wrong(60, 0))


def test_the_example_of_the_own_past_is_true():
    """A request at 12:01:59.5 is refused: wrongly for a log that refused the second 60, rightly by the same past."""
    found = measured("60/minute by fixed-window", *[59] * 60, *[60] * 60, 119.5)
    assert (found.refused, found.same_past, found.own_past) == (1, Wrong(60, 0), Wrong(60, 1))


def test_the_example_of_the_offered_is_true():
    """60 at 12:00:00 and 20 at 12:01:10: for the last ten the estimate is above the limit, the truth is not."""
    found = measured("60/minute by sliding-window", *[0] * 60, *[70] * 20)
    assert found.offered == Wrong(0, 10)


def test_nothing_refused():
    """A limit that refused nothing has no worst time."""
    none = replace(SERIES, refused=((0, 0, 0, 0),))
    assert findings.over_time(none, 0, "60/minute", 0) == "60/minute refused none of 1,000 requests."


def test_nothing_above():
    """Limits that all keep their amount are told in one sentence."""
    assert findings.overshoot(LIMITS[:1], ["log"]) == "No limit let a client pass more than its amount in any period."


def test_the_worst_is_told_by_its_multiple():
    """100 of 50 is more above its limit than 119 of 60."""
    other = replace(LIMITS[2], limit=Limit(50, 7200), most=100)
    assert findings.overshoot([LIMITS[2], other], ["one", "other"]) == (
        "other let one client pass 100 in 2 hours, 2.0x its amount of 50."
    )


def test_no_figures_by_a_measure():
    """Logs and buckets estimate nothing, so that there is no figure for what was offered."""
    assert findings.accuracy(COMPARISON, LIMITS[:1], ["log"], "offered") == "No limit here has such figures."


def test_the_smallest_state_may_be_right():
    """A limit that is never wrong is not compared with itself."""
    assert findings.accuracy(COMPARISON, LIMITS[:1], ["log"], "same") == (
        "log needs 520 bytes a client and answers 0 of 1,000 requests wrongly (0 %)."
    )
