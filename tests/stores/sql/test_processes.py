"""Processes that share a limit in a database."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.support import ROOT
from tests.support.postgres import PROGRAMS, running
from tests.support.sql_worker import AMOUNT, limits

pytestmark = pytest.mark.engineless


def spend(hits: int, *urls: str) -> list[list[int]]:
    """Eight processes hit one key under every limit of each store; return the units that they got in all."""
    command = [sys.executable, "-m", "tests.support.sql_worker", str(hits), *urls]
    started = [subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT) for _ in range(8)]
    each = [json.loads(process.communicate(timeout=300)[0]) for process in started]
    return [[sum(spent) for spent in zip(*of_store, strict=True)] for of_store in zip(*each, strict=True)]


@pytest.mark.parametrize("hits", [6, pytest.param(200, marks=pytest.mark.soak)])
def test_eight_processes_get_exactly_the_limit(hits, url):
    """Under every algorithm, processes that hit one key at once are admitted exactly the amount in all."""
    urls = [url]
    if PROGRAMS is not None:
        server = running()
        server.execute("DROP TABLE IF EXISTS headgate_states CASCADE")
        urls.append(server.url())
    assert spend(hits, *urls) == [[AMOUNT] * len(limits())] * len(urls)
