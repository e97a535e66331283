"""Comparisons of real logs: every figure equals the slow reference, and those that were published before."""

from __future__ import annotations

from itertools import islice

import pytest

from headgate.engine import NATIVE
from headgate.lab import Log, replay
from tests.lab.comparison.reference import figures
from tests.lab.comparison.test_comparison import every_figure
from tests.support.traces import trace

pytestmark = pytest.mark.engineless


@pytest.mark.parametrize(
    ("name", "limit", "lines"),
    [
        ("nginx-erddap-api-2024.log.gz", "10/minute", 3_000),
        ("apache-wordpress-2016.log.gz", "20/minute", 4_000),
        ("nasa-http-1995-08-01.tsv.gz", "20/hour", 3_000),
    ],
)
def test_every_figure_of_a_real_log_equals_the_reference(name, limit, lines):
    """The first lines of each log; the soak replays all of them."""
    fields = {"time": "time", "key": "host"} if name.endswith("tsv.gz") else None
    requests = list(islice(Log([trace(name)], fields=fields), lines))
    compared = replay(requests, limit)
    assert [every_figure(each) for each in compared.limits] == [
        figures(each.limit, requests) for each in compared.limits
    ]
    assert compared.limits[0].refused > 0


@pytest.mark.skipif(not NATIVE, reason="the pure engine is compared on fewer lines, and on all of them in the soak")
def test_the_figures_of_the_wordpress_log():
    """Refused, clients and the most in a minute, as an independent program has counted them before."""
    compared = replay(Log([trace("apache-wordpress-2016.log.gz")]), "60/minute")
    rows = [
        (each.limit.algorithm, each.refused, each.clients, each.most, each.same_past.passed, each.same_past.refused)
        for each in compared.limits
        if each.same_past is not None
    ]
    assert rows == [
        ("sliding-log", 1_762, 35, 60, 0, 0),
        ("sliding-window/60", 1_785, 37, 60, 0, 158),
        ("sliding-window", 1_628, 28, 87, 528, 234),
        ("fixed-window", 1_484, 23, 108, 976, 0),
        ("token-bucket", 1_022, 16, 119, 1_802, 0),
    ]
    assert (compared.requests, compared.clients) == (206_860, 8_799)
