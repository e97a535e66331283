"""Processes that share a limit in a database."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys

import pytest

from headgate import Limiter
from headgate.stores import open_store
from tests.support import ROOT
from tests.support.postgres import PROGRAMS, running
from tests.support.servers import wait_until
from tests.support.sql_worker import AMOUNT, limits

pytestmark = pytest.mark.engineless


def spend(processes: int, hits: int, *urls: str) -> list[list[int]]:
    """Processes hit one key under every limit of each store; return the units that they got in all."""
    command = [sys.executable, "-m", "tests.support.sql_worker", str(hits), *urls]
    started = [subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT) for _ in range(processes)]
    each = [json.loads(process.communicate(timeout=300)[0]) for process in started]
    return [[sum(spent) for spent in zip(*of_store, strict=True)] for of_store in zip(*each, strict=True)]


@pytest.mark.parametrize(("processes", "hits"), [(4, 12), pytest.param(8, 200, marks=pytest.mark.soak)])
def test_processes_get_exactly_the_limit(processes, hits, url):
    """Under every algorithm, processes that hit one key at once are admitted exactly the amount in all."""
    urls = [url]
    if PROGRAMS is not None:
        server = running()
        server.execute("DROP TABLE IF EXISTS headgate_states CASCADE")
        urls.append(server.url())
    assert spend(processes, hits, *urls) == [[AMOUNT] * len(limits())] * len(urls)


@pytest.mark.parametrize("where", ["SQLite", "PostgreSQL"])
def test_a_permit_of_a_killed_process_ends_by_its_ttl(where, url):
    """A process that is killed frees its permits when their leases end; a living process renews its own."""
    place = url if where == "SQLite" else running().url()
    code = (
        "import sys, time; from headgate import Limiter\n"
        f"decision = Limiter('2 in flight ttl 400ms', store={place!r}, on_error='raise').hit('k')\n"
        "print(decision.allowed, flush=True); time.sleep(60)"
    )
    with contextlib.closing(open_store(place, None)) as store:  # type: ignore[type-var]
        limiter = Limiter("2 in flight ttl 400ms", store=store, on_error="raise")
        limiter.reset("k")
        other = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, cwd=ROOT)
        assert other.stdout is not None and other.stdout.readline() == b"True\n"
        own = limiter.hit("k")
        assert own and not limiter.hit("k")
        assert sorted(holding.own for holding in limiter.holders("k")) == [False, True]
        other.send_signal(signal.SIGKILL)
        other.communicate()
        wait_until(lambda: len(limiter.holders("k")) == 1, "the permit of the killed process has ended")
        assert [holding.own for holding in limiter.holders("k")] == [True]
        limiter.release(own)
        assert limiter.holders("k") == []
