"""Every line of the real logs through every algorithm, against the slow reference, on both engines."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.support import ROOT
from tests.support.traces import trace

pytestmark = pytest.mark.soak

LOGS = {
    "apache-wordpress-2016.log.gz": ("60/minute", None),
    "nginx-erddap-api-2024.log.gz": ("10/minute", None),
    "nasa-http-1995-08-01.tsv.gz": ("20/hour", {"time": "time", "key": "host"}),
    "vtc-lmsys-27clients.csv.gz": ("300/minute", {"time": "1", "key": "2", "cost": "3"}),
}
PROGRAM = """
import sys
from headgate.lab import Log, replay
from tests.lab.comparison.reference import figures
from tests.lab.comparison.test_comparison import every_figure

requests = list(Log([sys.argv[1]], fields=eval(sys.argv[3])))
compared = replay(requests, sys.argv[2])
assert [every_figure(each) for each in compared.limits] == [figures(each.limit, requests) for each in compared.limits]
print(len(requests), sum(each.refused for each in compared.limits))
"""


@pytest.mark.parametrize("pure", ["0", "1"])
@pytest.mark.parametrize("name", LOGS)
def test_every_figure_of_a_whole_log_equals_the_reference(name, pure):
    """All requests of a log, with the costs that it has."""
    limit, fields = LOGS[name]
    command = [sys.executable, "-c", PROGRAM, str(trace(name)), limit, repr(fields)]
    ended = subprocess.run(
        command, cwd=ROOT, env=os.environ | {"HEADGATE_PURE": pure}, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stderr[-2000:]
    requests, refused = map(int, ended.stdout.split())
    assert requests > 1_000 and refused > 0
