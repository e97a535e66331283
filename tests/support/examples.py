"""The programs in `examples`, started by the command in their README, with other ports and other places for files."""

from __future__ import annotations

import http.client
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from tests.support import ROOT
from tests.support.access_logs import HOST, listens
from tests.support.servers import free_port, wait_until

EXAMPLES = ROOT / "examples"
COMMAND = re.compile(r"^```console\n\$ (.+)\n```$", re.MULTILINE)
PROGRAMS = str(Path(sys.executable).parent)
"""Where the programs of this environment are, as `.venv/bin` is in a clone."""


class Answer(NamedTuple):
    """What an example says to a request."""

    status: int
    headers: dict[str, str]
    body: str


class Example(NamedTuple):
    """An example that runs."""

    port: int
    log: Path

    def ask(self, method: str, path: str, body: str | None = None, most: int | None = None, **headers: str) -> Answer:
        """One request on a connection of its own, which is closed when `most` bytes of the answer are read."""
        connection = http.client.HTTPConnection(HOST, self.port, timeout=30)
        try:
            connection.request(method, path, body, {name.replace("_", "-"): value for name, value in headers.items()})
            answer = connection.getresponse()
            fields = {name.lower(): value for name, value in answer.getheaders()}
            return Answer(answer.status, fields, answer.read(most).decode())
        finally:
            connection.close()

    def statuses(self, count: int, method: str, path: str, body: str | None = None, **headers: str) -> list[int]:
        """The statuses of several requests, one after the other."""
        return [self.ask(method, path, body, **headers).status for _ in range(count)]


def command_of(name: str) -> str:
    """The one command in the README of an example."""
    commands = COMMAND.findall((EXAMPLES / name / "README.md").read_text(encoding="utf-8"))
    assert len(commands) == 1, f"the README of {name} has {len(commands)} commands"
    return str(commands[0])


def moved(name: str, folder: Path, places: dict[str, str]) -> str:
    """Copy an example, with other ports and paths in all of its files, and return its command with them."""
    shutil.copytree(EXAMPLES / name, folder / name)
    there = re.compile("|".join(map(re.escape, places)))

    def other(text: str) -> str:
        return there.sub(lambda found: places[found[0]], text)

    for path in (folder / name).rglob("*"):
        if path.is_file() and path.suffix != ".pyc":
            path.write_text(other(path.read_text(encoding="utf-8")), encoding="utf-8")
    command = other(command_of(name)).replace(f"examples/{name}", str(folder / name))
    return command.replace(".venv/bin", PROGRAMS)


def environment() -> dict[str, str]:
    """The programs of this environment first, and output that is not held back."""
    return {**os.environ, "PATH": f"{PROGRAMS}:{os.environ['PATH']}", "PYTHONUNBUFFERED": "1"}


@contextmanager
def started(name: str, folder: Path, listen: int, *others: int) -> Iterator[Example]:
    """An example that listens, until the block ends. It is told to end by one signal, and ends all of its processes."""
    ports = {str(port): str(free_port()) for port in (listen, *others)}
    command = moved(name, folder, {**ports, "/dev/shm/": f"{folder}/"})
    example = Example(int(ports[str(listen)]), folder / "log")
    with example.log.open("wb") as log:
        process = subprocess.Popen(
            f"exec {command}", shell=True, cwd=ROOT, env=environment(), stdout=log, stderr=log, start_new_session=True
        )
    try:
        wait_until(lambda: process.poll() is not None or listens(example.port), f"{name} listens", 120)
        assert process.poll() is None, example.log.read_text()
        yield example
        process.terminate()
        process.wait(60)
        wait_until(lambda: not _signalled(process.pid, 0), f"every process of {name} has ended", 60)
    finally:
        _signalled(process.pid, signal.SIGKILL)  # what has not ended by itself
        process.wait(60)


def _signalled(group: int, number: int) -> bool:
    """Send a signal to every process of a group; whether there was one."""
    try:
        os.killpg(group, number)
    except ProcessLookupError:
        return False
    return True
