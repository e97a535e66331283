"""A real PostgreSQL for tests, in a temporary folder: Debian's, any on the path, or that of the wheel `pgserver`."""

from __future__ import annotations

import atexit
import contextlib
import glob
import importlib.util
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.servers import free_port, wait_until

SETTINGS = {
    "fsync": "off", "full_page_writes": "off", "max_connections": "60", "shared_buffers": "16MB",
    "wal_level": "replica", "max_wal_senders": "4", "hot_standby": "on", "log_min_messages": "fatal",
    "autovacuum": "off",
}  # fmt: skip


def _programs() -> str | None:
    """The folder of `initdb` and `postgres`."""
    folders = sorted(glob.glob("/usr/lib/postgresql/*/bin"), reverse=True)
    found = shutil.which("initdb")
    folders += [str(Path(found).parent)] if found else []
    spec = importlib.util.find_spec("pgserver")
    for place in (spec and spec.submodule_search_locations) or ():
        folders.append(str(Path(place) / "pginstall" / "bin"))
    return next((folder for folder in folders if (Path(folder) / "initdb").exists()), None)


PROGRAMS = _programs()
WHY_NOT = "there is no PostgreSQL here: apt install postgresql, or pip install pgserver"


def psycopg() -> Any:
    """The client, or the reason why the test is skipped."""
    return pytest.importorskip("psycopg", reason="psycopg is not installed: pip install 'psycopg[binary,pool]'")


class Postgres:
    """A server on a port and in a folder of its own. `postgres` refuses to run as root, so it runs as nobody then."""

    def __init__(self) -> None:
        if PROGRAMS is None:
            pytest.skip(WHY_NOT)
        self.folder = Path(
            tempfile.mkdtemp(prefix="headgate-pg-", dir="/dev/shm" if Path("/dev/shm").is_dir() else None)
        )
        self.data = self.folder / "data"
        self.port = free_port()
        self.process: subprocess.Popen[bytes] | None = None
        if os.getuid() == 0:
            os.chmod(self.folder, 0o777)
        atexit.register(self.close)

    @property
    def socket_path(self) -> str:
        return f"{self.folder}/.s.PGSQL.{self.port}"

    def url(self, database: str = "postgres", user: str = "postgres", port: int | None = None, **options: Any) -> str:
        """The URL of a store; a busy machine is given time."""
        asked = {"deadline": 20, "connect_timeout": 20, **options}
        query = "&".join(f"{name}={value}" for name, value in asked.items())
        return f"postgresql://{user}@127.0.0.1:{port or self.port}/{database}?{query}"

    def dsn(self, database: str = "postgres") -> str:
        return f"postgresql://postgres@127.0.0.1:{self.port}/{database}"

    def make(self) -> Postgres:
        self._run(
            "initdb", "-D", str(self.data), "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-sync", "--locale=C"
        )
        return self

    def start(self) -> Postgres:
        options = [word for name, value in SETTINGS.items() for word in ("-c", f"{name}={value}")]
        self.process = subprocess.Popen(
            [*as_nobody(), f"{PROGRAMS}/postgres", "-D", str(self.data), "-p", str(self.port), "-k", str(self.folder),
             "-c", "listen_addresses=127.0.0.1", *options],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        wait_until(self._answers, "PostgreSQL answers")
        return self

    def _answers(self) -> bool:
        with contextlib.suppress(psycopg().Error):
            with psycopg().connect(self.dsn(), connect_timeout=5) as connection:
                connection.execute("SELECT 1")
            return True
        return False

    def execute(self, *statements: str, database: str = "postgres") -> list[Any]:
        """Run statements as the owner of the server; return the rows of the last one."""
        with psycopg().connect(self.dsn(database), autocommit=True) as connection:
            for statement in statements:
                cursor = connection.execute(statement)
            return cursor.fetchall() if cursor.description else []

    def kill(self) -> None:
        """End the server as a crash does: at once, with all of its sessions."""
        self._end(signal.SIGKILL)

    def _end(self, how: signal.Signals) -> None:
        process, self.process = self.process, None
        if process is not None and process.poll() is None:
            pid = int((self.data / "postmaster.pid").read_text().split()[0])
            os.kill(pid, how)
            process.wait(30)
        if how == signal.SIGKILL:  # sessions notice that their parent is gone
            wait_until(lambda: not _alive(str(self.data)), "the sessions have ended")
            (self.data / "postmaster.pid").unlink(missing_ok=True)

    def close(self) -> None:
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):
            self._end(signal.SIGQUIT)
        shutil.rmtree(self.folder, ignore_errors=True)

    def _run(self, program: str, *arguments: str) -> None:
        subprocess.run(
            [*as_nobody(), f"{PROGRAMS}/{program}", *arguments], check=True, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL, timeout=120, cwd=self.folder,
        )  # fmt: skip

    def replica(self) -> Postgres:
        """Another server, which follows this one."""
        other = Postgres()
        primary = f"host=127.0.0.1 port={self.port} user=postgres"
        other._run(
            "pg_basebackup", "-D", str(other.data), "-d", primary, "-R", "-X", "stream", "-c", "fast", "--no-sync"
        )
        return other.start()

    def promote(self) -> None:
        """Let a replica become a primary."""
        self.execute("SELECT pg_promote(true, 30)")


def as_nobody() -> list[str]:
    """The words before a command that refuses to run as root."""
    return ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"] if os.getuid() == 0 else []


def _alive(folder: str) -> bool:
    """Whether a process of this server is left: each has the folder as its working directory."""
    for place in glob.glob("/proc/[0-9]*/cwd"):
        with contextlib.suppress(OSError):
            if os.readlink(place) == folder:
                return True
    return False


_running: list[Postgres] = []


def running() -> Postgres:
    """One server for the whole run, with no rows in it; it ends with the process."""
    psycopg()
    if not _running:
        _running.append(Postgres().make().start())
    return _running[0]


@contextlib.contextmanager
def another() -> Iterator[Postgres]:
    """A server that a test may kill."""
    psycopg()
    server = Postgres().make()
    try:
        yield server.start()
    finally:
        server.close()
