"""Real workers of task queues: they are started, and what their tasks noted is read."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.support import ROOT
from tests.support.servers import Server

PATIENCE = 60
"""Seconds for a worker on a machine that is busy with something else."""


@contextlib.contextmanager
def working(server: Server, folder: Path, *command: str) -> Iterator[Path]:
    """A worker with all its processes, which are ended with it; where it logs."""
    log = folder / "log"
    environment = {**os.environ, "HEADGATE_URL": server.url}
    with log.open("ab") as said:
        worker = subprocess.Popen(
            [sys.executable, "-m", *command],
            env=environment,
            cwd=ROOT,
            stdout=said,
            stderr=said,
            start_new_session=True,
        )
    try:
        yield log
    finally:
        os.killpg(worker.pid, signal.SIGKILL)  # nothing of it is kept
        worker.wait(5)


def noted(server: Server, what: str) -> list[list[str]]:
    """What tasks noted: microseconds, process, and what they said, in the order of the server's time."""
    return sorted(bytes(line).decode().split() for line in server.client().lrange(what, 0, -1))


def now_us(server: Server) -> int:
    seconds, us = server.client().time()
    return int(seconds) * 1_000_000 + int(us)


def assert_within(start_us: int, instants: list[int], rate: int, burst: int) -> None:
    """At no instant had more begun than a bucket allows from the start: a task is noted after it was admitted."""
    for count, at in enumerate(sorted(instants), 1):
        assert count <= burst + (at - start_us) * rate / 1_000_000, f"the {count}th came {(at - start_us) / 1e6} s in"
