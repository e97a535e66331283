"""The decision service as its users run it: a command, whose workers are real processes."""

from __future__ import annotations

import http.client
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

HOST = "127.0.0.1"
Answer = tuple[int, dict[str, str], bytes]


class Service:
    """A running service, and the lines that it has printed so far."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.lines: list[str] = []
        self._changed = threading.Condition()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        ready = self.line(r"ready: (?:https?://[^,]*:(\d+)|unix:\S+),")
        self.port = int(ready[1] or 0)

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            with self._changed:
                self.lines.append(line.rstrip("\n"))
                self._changed.notify_all()
        with self._changed:
            self.lines.append("")
            self._changed.notify_all()

    def line(self, pattern: str, within: float = 30) -> re.Match[str]:
        """The first line that matches; waits for it."""
        found: list[re.Match[str]] = []

        def is_there() -> bool:
            found[:] = [each for line in self.lines if (each := re.search(pattern, line))]
            return bool(found) or (not self._reader.is_alive() or self.lines[-1:] == [""])

        with self._changed:
            self._changed.wait_for(is_there, within)
        assert found, f"no line matches {pattern!r}: {self.lines}"
        return found[0]

    def workers(self) -> list[int]:
        """The ids of the processes that serve now."""
        listed = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        return [int(pid) for pid in listed if b"spawn_main" in _command(pid)]

    def end(self) -> int:
        """Tell it to end as a process manager does, and return its exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(30)

    def hang(self) -> None:
        """Stop every process where it is: connections are still taken by the kernel, and nothing is answered."""
        self._every(signal.SIGSTOP)

    def go_on(self) -> None:
        """End a hang."""
        self._every(signal.SIGCONT)

    def kill(self) -> None:
        """End every process that still runs at once, also one that hangs."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def _every(self, number: int) -> None:
        for pid in (self.process.pid, *self.workers()):
            os.kill(pid, number)

    def ask(self, method: str, path: str, headers: dict[str, str] | None = None, body: bytes | None = None) -> Answer:
        """One request, on a connection of its own."""
        connection = http.client.HTTPConnection(HOST, self.port, timeout=10)
        try:
            connection.request(method, path, body, headers or {})
            answer = connection.getresponse()
            return answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read()
        finally:
            connection.close()

    def check(self, uri: str, client: str = "203.0.113.9", query: str = "", **headers: str) -> Answer:
        """Ask about a GET request as a proxy does."""
        told = {"X-Forwarded-Method": "GET", "X-Forwarded-Uri": uri, "X-Forwarded-For": client, **headers}
        return self.ask("GET", f"/check{query}", told)


def _command(pid: str) -> bytes:
    """The command of a process; nothing if it has ended meanwhile."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b""


@contextmanager
def serving(*options: str, listen: str = f"{HOST}:0") -> Iterator[Service]:
    """A service that is ready; it is killed at the end if it still runs."""
    words = [sys.executable, "-m", "headgate", "serve", "--listen", listen, *options]
    process = subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True, env=dict(os.environ)
    )
    with process:  # closes its pipe
        try:
            yield Service(process)
        finally:
            if process.poll() is None:
                process.terminate()
                time.sleep(0.1)
                process.terminate()  # the second time: now
                try:
                    process.wait(20)
                except subprocess.TimeoutExpired:
                    os.killpg(process.pid, signal.SIGKILL)


def refuses(*options: str) -> str:
    """What a service says that does not start."""
    words = [sys.executable, "-m", "headgate", "serve", *options]
    ended = subprocess.run(words, capture_output=True, text=True, timeout=30, check=False)
    assert ended.returncode == 1, (ended.returncode, ended.stdout, ended.stderr)
    return ended.stderr


def unix_ask(path: str, request: bytes) -> bytes:
    """The answer to one request over a unix socket."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(10)
        connection.connect(path)
        connection.sendall(request)
        return b"".join(iter(lambda: connection.recv(65536), b""))
