"""A task as a transaction in PostgreSQL, and how a failure of one is understood."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Generic, TypeVar

from headgate.stores.sql.base import BusyError, DatabaseError
from headgate.stores.sql.bound import Task
from headgate.stores.sql.conversation import Results, ServerError, Steps, check
from headgate.stores.sql.rows import Stored
from headgate.stores.sql.schema import READ_VERSION, TABLE, VERSION, wrong_version
from headgate.stores.sql.statements import COMMIT, MAKE, closing, opening, reading, sweeping

T = TypeVar("T")
NO_TABLE: Final = "42P01"
READ_ONLY: Final = "25006"
AGAIN: Final = ("40001", "40P01", READ_ONLY)
"""Errors that mean that nothing was written: a serialization failure, a deadlock, a server that became a replica."""
BUSY: Final = ("55P03", "57014")
"""A lock was not free in time."""
WAIT_FOR_LOCKS: Final = 0.8
"""The part of the deadline for which the server waits for locks, so that its error still arrives in time."""
REMEDIES: Final = {
    NO_TABLE: f"the table {TABLE} is not there: run headgate sql init URL",
    "42703": f"the table {TABLE} has other columns: drop it, then run headgate sql init URL",
    "42501": f"the role may not use or make {TABLE}: run headgate sql init URL as a role that may create tables, "
    f"then GRANT SELECT, INSERT, UPDATE, DELETE ON {TABLE} to this role",
    "3F000": "the role has no schema to make the table in: run headgate sql init URL as a role that may create tables",
    READ_ONLY: "the server is read-only; with several hosts in the URL, add target_session_attrs=read-write",
    "53300": "the server has no free connections: lower max_connections, or use PgBouncer",
}


class Transaction(Generic[T]):
    """A task on its way; a task that takes no locks is one query without a transaction."""

    def __init__(self, task: Task[T], now: int | None, patience: float, sweeps: Callable[[], bool]) -> None:
        self._task = task
        self._now = now
        self._patience_ms = max(1, round(patience * WAIT_FOR_LOCKS * 1000))
        self._sweeps = sweeps
        self.committing = False
        """Whether the commit was sent: if the connection is lost then, nobody knows whether the server applied it."""

    def steps(self) -> Steps[T]:
        """Read, work, write and commit: two round trips."""
        task = self._task
        if not task.locks:
            found = yield reading(task.names)
            return task.work(*self._read(found))[0]
        found = yield opening(task.names, task.locks, self._patience_ms)
        value, changes = task.work(*self._read(found))
        if not changes.rows and not changes.gone:
            check((yield "ROLLBACK"))
            return value
        text = closing(changes)
        self.committing = True
        results = yield f"{text};{sweeping(None)}" if self._sweeps() else text
        # A sweep that fails after the commit leaves its rows to the next one.
        if not any(result.command_status == b"COMMIT" for result in results):
            check(results)
            raise ServerError("40000", f"the server did not {COMMIT.lower()}")
        return value

    def _read(self, results: Results) -> tuple[list[Stored | None], int]:
        check(results)
        found: list[Stored | None] = [None] * len(self._task.names)
        rows = results[-1]
        now = int(rows.get_value(0, 1))
        for nth in range(1, rows.ntuples):
            found[int(rows.get_value(nth, 0))] = Stored(rows.get_value(nth, 1).decode(), int(rows.get_value(nth, 2)))
        return found, now if self._now is None else self._now


def preparing(name: str) -> Steps[None]:
    """Check the version of the table; make the table if it is not there."""
    results = yield READ_VERSION
    try:
        check(results)
    except ServerError as error:
        if error.code != NO_TABLE:
            raise
        check((yield MAKE))
        results = yield READ_VERSION
        check(results)
    rows = results[-1]
    version = rows.get_value(0, 0).decode() if rows.ntuples else "none"
    if version != str(VERSION):
        raise DatabaseError(wrong_version(name, version))


def alone(text: str) -> Steps[int]:
    """Run one statement, and return the number of rows that it changed."""
    results = yield text
    check(results)
    return int(results[-1].command_tuples or 0)


def explained(name: str, error: BaseException) -> DatabaseError:
    """Return the error that callers see."""
    if isinstance(error, DatabaseError):
        return error
    if not isinstance(error, ServerError):
        return DatabaseError(f"{name} cannot answer now: {type(error).__name__}: {error}")
    if error.code in BUSY:
        return BusyError(f"{name}: other transactions held these keys for longer than the deadline")
    remedy = REMEDIES.get(error.code)
    return DatabaseError(f"{name}: {remedy} ({error})" if remedy else f"{name}: {error} (SQLSTATE {error.code})")
