"""States in a SQLite file: exact over the processes of one machine, and kept over restarts; no server.

`SqliteStore("sqlite:///var/lib/app/limits.db")`. A decision is a transaction of the file: it begins with the write
lock, so no other process decides meanwhile. Event loops ask in one thread.
"""

from __future__ import annotations

import random
import sqlite3
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, Final, TypeVar

from headgate.clock import Clock, WallClock
from headgate.steps import running_loop
from headgate.stores.breaker import Transition
from headgate.stores.contract import Store
from headgate.stores.options import Options, read_options
from headgate.stores.sql.base import BusyError, DatabaseError, SqlStore
from headgate.stores.sql.bound import Changes, Task
from headgate.stores.sql.names import Name
from headgate.stores.sql.place import EXAMPLE, OPTIONS, Place, path_of
from headgate.stores.sql.rows import Stored
from headgate.stores.sql.schema import COLUMNS, READ_VERSION, SQLITE, TABLE, VERSION, wrong_version
from headgate.stores.sql.sweeping import MOST_SWEPT, Sweeping
from headgate.wording import explained

FIRST_PAUSE: Final = 0.0001
LONGEST_PAUSE: Final = 0.002
"""Seconds between attempts to get the write lock; SQLite's own handler pauses for up to 0.1 s."""

SELECT: Final = f"SELECT state, blocked_until FROM {TABLE} WHERE namespace = ? AND key = ? AND limit_name = ?"  # noqa: S608
UPSERT: Final = (
    f"INSERT INTO {TABLE} ({COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) "  # noqa: S608
    "ON CONFLICT DO UPDATE SET state = excluded.state, blocked_until = excluded.blocked_until, "
    "remaining = excluded.remaining, burst = excluded.burst, decided_at = excluded.decided_at, "
    "expires_at = excluded.expires_at"
)
DELETE: Final = f"DELETE FROM {TABLE} WHERE namespace = ? AND key = ? AND limit_name = ?"  # noqa: S608
CLEAR: Final = f"DELETE FROM {TABLE} WHERE namespace = ?"  # noqa: S608
SWEEP: Final = (
    f"DELETE FROM {TABLE} WHERE (namespace, key, limit_name) IN "  # noqa: S608
    f"(SELECT namespace, key, limit_name FROM {TABLE} WHERE expires_at < ? ORDER BY expires_at LIMIT {MOST_SWEPT})"
)
BUSY: Final = ("SQLITE_BUSY", "SQLITE_LOCKED")
REMEDIES: Final = {
    "SQLITE_READONLY": "is read-only: this user must be able to write to the file and to its directory",
    "SQLITE_FULL": "cannot grow: the disk is full",
    "SQLITE_CANTOPEN": "cannot be opened: its directory must exist, and this user must be able to write to it",
    "SQLITE_NOTADB": "is not a SQLite database",
    "SQLITE_CORRUPT": "is damaged: move it away, or repair it with sqlite3 and .recover",
    "SQLITE_IOERR": "cannot be read or written",
}
T = TypeVar("T")
_chance = random.Random()  # noqa: S311 - not the program's own generator, which it may have seeded


class SqliteStore(SqlStore):
    """A store in a SQLite file, for the processes of one machine.

    `deadline` (0.25): seconds a decision may wait for other processes; later, the limiter's `on_error` answers. `nodes`
    (1): the number of processes that share a limit while the file cannot be used. `readable_keys` (False): store keys
    as they are instead of their hashes, so that they can be joined with other tables. All three may be options of the
    URL instead. `local`: the store that answers meanwhile, if `on_error` is `"local"`. `pepper`: a secret, without
    which hashes of keys cannot be computed. `on_transition`: called with a `Transition` when the file cannot be used,
    and when it can again. `clock`: for tests, in place of the machine's clock.
    """

    on_server = False

    @explained
    def __init__(
        self,
        url: str,
        *,
        deadline: float | None = None,
        nodes: int | None = None,
        readable_keys: bool | None = None,
        local: Store | str | None = None,
        pepper: bytes = b"",
        on_transition: Callable[[Transition], None] | None = None,
        clock: Clock | None = None,
    ) -> None:
        given = {"deadline": deadline, "nodes": nodes, "readable_keys": readable_keys}
        plain, in_url = read_options(url, Options(), OPTIONS, EXAMPLE)
        options = in_url.with_arguments(given)
        self.path = path_of(plain)
        self._place = Place(self.path)
        self._wall = WallClock()
        self._sweeping = Sweeping()
        self._connection: sqlite3.Connection | None = None
        self._closes: weakref.finalize[..., Any] | None = None
        """Closes the connection of a store that was not closed and is not used any more."""
        self._thread: ThreadPoolExecutor | None = None
        super().__init__(self.path, options, local, pepper, on_transition, clock)
        self._forget()

    def hang_up(self) -> None:
        """Close the connection."""
        with self._lock:
            if self._connection is not None:
                self._connection.close()
                self._connection = None

    def close(self) -> None:
        """Close the file; permits are not renewed. A store that is used again opens it again."""
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.shutdown()
        super().close()

    async def aclose(self) -> None:
        """Close the file."""
        await running_loop().run_in_executor(None, self.close)

    def _forget(self) -> None:
        self._abandoned = self._connection  # kept: closing it could truncate the parent's log
        if self._closes is not None:
            self._closes.detach()
        self._connection = None
        self._lock = threading.Lock()
        self._thread = None

    def make_table(self) -> str:
        """Make the table, if it is not there; return the path of the file."""
        self._noting(lambda: self._exclusively(self._due(), lambda _: None))
        return self.path

    def _due(self) -> float:
        return time.monotonic() + self.options.deadline

    def _run(self, task: Task[T]) -> T:
        return self._run_by(task, self._due())

    async def _run_async(self, task: Task[T]) -> T:
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, "headgate-sqlite")
        loop, due = running_loop(), self._due()
        return await loop.run_in_executor(self._thread, self._run_by, task, due)

    def _run_by(self, task: Task[T], due: float) -> T:
        if time.monotonic() >= due:  # it waited for the thread for too long: its caller has a deadline
            raise BusyError(f"{self.path}: other decisions of this process took longer than the deadline")
        if not task.locks:
            return self._exclusively(due, lambda connection: self._work(connection, task)[0])
        return self._exclusively(due, lambda connection: self._decide(connection, task, due))

    def _work(self, connection: sqlite3.Connection, task: Task[T]) -> tuple[T, Changes]:
        stored = _read(connection, task.names)
        now = self._now_us()
        return task.work(stored, self._wall.now_us() if now is None else now)

    def _decide(self, connection: sqlite3.Connection, task: Task[T], due: float) -> T:
        _begin(connection, due)
        value, changes = self._work(connection, task)
        if not changes.rows and not changes.gone:
            connection.execute("ROLLBACK")
            return value
        for name, *rest in changes.rows:
            connection.execute(UPSERT, (*name, *rest))
        for name in changes.gone:
            connection.execute(DELETE, name)
        connection.execute("COMMIT")
        self._sweeping.wrote()
        if self._clock is None and self._sweeping.is_due():
            with suppress(sqlite3.Error):  # the decision is made; the rows are still there for the next sweep
                connection.execute(SWEEP, (self._wall.now_us(),))
        return value

    def _clear(self, namespace: str) -> None:
        due = self._due()
        self._exclusively(due, lambda connection: _alone(connection, due, CLEAR, namespace))

    def _sweep(self) -> int:
        due, now = self._due(), self._now_us()
        instant = self._wall.now_us() if now is None else now
        return self._exclusively(due, lambda connection: _alone(connection, due, SWEEP, instant))

    def _exclusively(self, due: float, work: Callable[[sqlite3.Connection], T]) -> T:
        """Run work with the connection of this process, which threads use one after the other."""
        if not self._lock.acquire(timeout=max(0.0, due - time.monotonic())):
            raise BusyError(f"{self.path}: other decisions of this process took longer than the deadline")
        try:
            connection = self._connection
            if connection is not None and self._place.is_lost():
                connection.close()  # SQLite leaves the log of a new file alone then
                connection = self._connection = None
            if connection is None:
                connection = self._connection = self._open(due)
                self._place.note()
                self._closes = weakref.finalize(self, connection.close)
                self._closes.atexit = False
            try:
                return work(connection)
            except BaseException:
                self._end(connection)
                raise
        except sqlite3.Error as error:
            raise _explained(self.path, error) from error
        finally:
            self._lock.release()

    def _end(self, connection: sqlite3.Connection) -> None:
        """Roll back; where that fails too, the next decision opens the file again."""
        try:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
        except sqlite3.Error:
            self._connection = None
            connection.close()

    def _open(self, due: float) -> sqlite3.Connection:
        connection = sqlite3.connect(self.path, timeout=0, isolation_level=None, check_same_thread=False)
        try:
            _persist(lambda: connection.execute("PRAGMA journal_mode = WAL"), due)
            connection.execute("PRAGMA synchronous = NORMAL")
            if not _has_table(connection):
                _begin(connection, due)
                for statement in SQLITE:
                    connection.execute(statement)
                connection.execute("COMMIT")
            found = connection.execute(READ_VERSION).fetchone()
            version = found[0] if found else "none"
            if version != str(VERSION):
                raise DatabaseError(wrong_version(self.path, version))
        except BaseException:
            connection.close()
            raise
        return connection


def _read(connection: sqlite3.Connection, names: Sequence[Name]) -> list[Stored | None]:
    """Read rows; outside of a transaction, rows of one instant are read in one."""
    several = len(names) > 1 and not connection.in_transaction
    if several:
        connection.execute("BEGIN")
    found = [connection.execute(SELECT, name).fetchone() for name in names]
    if several:
        connection.execute("COMMIT")
    return [None if row is None else Stored(*row) for row in found]


def _has_table(connection: sqlite3.Connection) -> bool:
    found = connection.execute("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?", (TABLE,))
    return found.fetchone() is not None


def _begin(connection: sqlite3.Connection, due: float) -> None:
    _persist(lambda: connection.execute("BEGIN IMMEDIATE"), due)


def _alone(connection: sqlite3.Connection, due: float, statement: str, argument: str | int) -> int:
    """Run one statement as a transaction, and return the number of rows that it changed."""
    _begin(connection, due)
    changed = connection.execute(statement, (argument,)).rowcount
    connection.execute("COMMIT")
    return changed


def _persist(attempt: Callable[[], object], due: float) -> None:
    """Try again while another process has the write lock, until the deadline."""
    pause = FIRST_PAUSE
    while True:
        try:
            attempt()
        except sqlite3.OperationalError as error:
            if not error.sqlite_errorname.startswith(BUSY) or time.monotonic() + pause > due:
                raise
        else:
            return
        time.sleep(pause * _chance.uniform(0.5, 1.0))
        pause = min(pause * 1.5, LONGEST_PAUSE)


def _explained(path: str, error: sqlite3.Error) -> DatabaseError:
    code: str = getattr(error, "sqlite_errorname", "") or ""
    if code.startswith(BUSY):
        return DatabaseError(f"{path}: other processes held the write lock for longer than the deadline")
    remedy = next((text for name, text in REMEDIES.items() if code.startswith(name)), "")
    return DatabaseError(f"{path} {remedy} ({code})" if remedy else f"{path}: {type(error).__name__}: {error}")
