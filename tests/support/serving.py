"""Real web servers on unix sockets, and a client of them that knows no framework."""

from __future__ import annotations

import contextlib
import http.client
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from socketserver import BaseServer
from typing import NamedTuple, TypeVar

from tests.support import ROOT
from tests.support.edges import Answer
from tests.support.servers import wait_until

GUNICORN = ("gunicorn", "--threads=2", "--bind=unix:{socket}", "--log-level=error")
S = TypeVar("S", bound=BaseServer)
UVICORN = ("uvicorn", "--uds={socket}", "--log-level=error")


class UnixConnection(http.client.HTTPConnection):
    """A connection by HTTP to a unix socket."""

    def __init__(self, path: str) -> None:
        super().__init__("localhost")
        self.path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(60)
        self.sock.connect(self.path)


class Served(NamedTuple):
    """A server that runs."""

    path: str
    log: Path

    def ask(self, path: str = "/", user: str = "ann", **headers: str) -> Answer:
        """One request on a connection of its own."""
        connection = UnixConnection(self.path)
        try:
            connection.request("GET", path, headers={"X-User": user, **headers})
            answer = connection.getresponse()
            return Answer(answer.status, answer.getheaders(), answer.read())
        finally:
            connection.close()


@contextlib.contextmanager
def serving(folder: Path, *command: str, cwd: Path = ROOT, **environment: str) -> Iterator[Served]:
    """Run a module of Python, with the path of its socket in place of `{socket}`; its words are kept in a log."""
    with tempfile.TemporaryDirectory() as short:  # a unix socket's path may not be long
        server = Served(os.path.join(short, "s"), folder / "log")
        words = [sys.executable, "-m", *(word.format(socket=server.path) for word in command)]
        with server.log.open("wb") as said:
            process = subprocess.Popen(
                words, cwd=cwd, env={**os.environ, **environment}, stdout=said, stderr=said, start_new_session=True
            )
        try:
            wait_until(lambda: process.poll() is not None or _listens(server.path), "the server is up", 120)
            assert process.poll() is None, server.log.read_text()
            yield server
        finally:
            os.killpg(process.pid, signal.SIGTERM)  # its own group: a reloader has a child
            process.wait(120)


@contextlib.contextmanager
def in_thread(server: S) -> Iterator[S]:
    """Serve in a thread of this process."""
    with server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join(60)


def _listens(path: str) -> bool:
    with socket.socket(socket.AF_UNIX) as probe:
        return probe.connect_ex(path) == 0
