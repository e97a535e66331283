"""Calls of a real Envoy on one connection, a thousand for each of SOAK_SECONDS; SOAK_SECONDS=1000 runs a million."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support import soaking
from tests.support.envoy import LIMITS, PATIENT, counters, envoy, limited, needs_envoy
from tests.support.proxies import app, crowd
from tests.support.servers import free_port

pytestmark = pytest.mark.soak
CALLS = min(1_000_000, int(1_000 * soaking.SECONDS))
AT_ONCE = 8
ROUND = 500


def resident(pid: int) -> int:
    """Return the kilobytes of memory of a process."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS"))


@needs_envoy
def test_a_million_calls_on_one_connection(tmp_path: Path) -> None:
    """Each call is decided by the service and counted once, as Envoy counts too, and the service does not grow."""
    text = LIMITS.replace("requests_per_unit: 100", "requests_per_unit: 100000000").replace("unit: hour", "unit: year")
    admin = free_port()
    with (
        limited(tmp_path, 1, text) as (service, ports),
        app() as app_port,
        envoy(PATIENT, app_port, ports, tmp_path / "e", threads=1, admin=admin) as port,
    ):
        done, workers, sizes = 0, service.workers(), list[int]()
        while done < CALLS:
            found = crowd(port, "/", AT_ONCE, ROUND)
            done += len(found)
            assert {status for status, _ in found} == {200}
            assert min(int(fields["x-ratelimit-remaining"]) for _, fields in found) == 100_000_000 - done
            sizes.append(max(map(resident, workers)))
        assert service.workers() == workers
        assert sizes[-1] - sizes[0] < 4096
        told = {name: count for name, count in counters(admin, "cluster.app.ratelimit.").items() if count}
        assert told == {"ok": done}  # no error, none over the limit, and none that passed because of a failure
        asked = counters(admin, "cluster.headgate.")
        assert asked["upstream_cx_total"] == 1
        assert (asked["upstream_rq_200"], asked["upstream_rq_total"]) == (done, done)
