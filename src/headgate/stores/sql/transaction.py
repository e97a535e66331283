"""A task as a transaction in PostgreSQL, and how a failure of one is understood."""

from __future__ import annotations

from typing import Final, Generic, TypeVar

from headgate.stores.sql.base import BusyError, DatabaseError
from headgate.stores.sql.bound import Remote, Task
from headgate.stores.sql.conversation import Results, ServerError, Steps, check
from headgate.stores.sql.functions import functions
from headgate.stores.sql.pools import CROWDED
from headgate.stores.sql.rows import Stored
from headgate.stores.sql.schema import READ_VERSION, TABLE, VERSION, wrong_version
from headgate.stores.sql.statements import (
    COMMIT,
    MAKE,
    calling,
    closing,
    counting_functions,
    making_functions,
    opening,
    reading,
    sweeping,
)
from headgate.stores.sql.sweeping import Sweeping
from headgate.wording import log_of

T = TypeVar("T")
log = log_of("headgate")
NO_TABLE: Final = "42P01"
NO_FUNCTION: Final = "42883"
READ_ONLY: Final = "25006"
IN_THE_WAY: Final = ("40001", "40P01")
"""A serialization failure, a deadlock: another transaction was in the way."""
AGAIN: Final = (*IN_THE_WAY, READ_ONLY, NO_FUNCTION)
"""Errors that mean that nothing was written; also a server that became a replica, and a function that was dropped."""
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
    "53300": CROWDED,
}


class Transaction(Generic[T]):
    """A task on its way; a task that takes no locks is one query without a transaction."""

    def __init__(self, task: Task[T], now: int | None, patience: float, sweeping: Sweeping) -> None:
        self._task = task
        self._now = now
        self._patience_ms = max(1, round(patience * WAIT_FOR_LOCKS * 1000))
        self._sweeping = sweeping
        self.committing = False
        """Whether the commit was sent: if the connection is lost then, the server may have applied it or not."""

    def steps(self, on_server: bool) -> Steps[T]:
        """Decide and commit: in one round trip where the server has a function for the task."""
        task = self._task
        if not task.locks:
            found = yield reading(task.names)
            return task.work(*self._read(found))[0]
        if on_server and task.remote is not None:
            return (yield from self._call(task.remote))
        return (yield from self._decide())

    def _call(self, remote: Remote[T]) -> Steps[T]:
        """Let a function of the server do the work."""
        results = yield from self._commit(calling(self._task, remote, self._patience_ms, self._now))
        _, allowed, *rest = map(int, results[1].get_value(0, 0)[1:-1].split(b","))
        if allowed:
            self._sweeping.wrote()
        return remote.read([allowed, *rest])

    def _decide(self) -> Steps[T]:
        """Read, run the reference steps here, write and commit: two round trips."""
        task = self._task
        found = yield opening(task.names, task.locks, self._patience_ms)
        value, changes = task.work(*self._read(found))
        if not changes.rows and not changes.gone:
            check((yield "ROLLBACK"))
            return value
        self._sweeping.wrote()
        yield from self._commit(closing(changes))
        return value

    def _commit(self, text: str) -> Steps[Results]:
        """Send a text that ends with a commit, and a sweep after it if one is due."""
        sweeps = self._now is None and self._sweeping.is_due()
        self.committing = True
        results = yield f"{text};{sweeping(None)}" if sweeps else text
        # A sweep that fails after the commit leaves its rows to the next one.
        if not any(result.command_status == b"COMMIT" for result in results):
            check(results)
            raise ServerError("40000", f"the server did not {COMMIT.lower()}")
        return results

    def _read(self, results: Results) -> tuple[list[Stored | None], int]:
        check(results)
        found: list[Stored | None] = [None] * len(self._task.names)
        rows = results[-1]
        now = int(rows.get_value(0, 1))
        for nth in range(1, rows.ntuples):
            found[int(rows.get_value(nth, 0))] = Stored(rows.get_value(nth, 1).decode(), int(rows.get_value(nth, 2)))
        return found, now if self._now is None else self._now


def preparing(name: str) -> Steps[bool]:
    """Check the version of the table; make the table and the functions if they are not there.

    Return whether the functions are there: a role that may use a table need not be allowed to make them.
    """
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
    if (yield from _has_functions()):
        return True
    try:
        check((yield making_functions()))
    except ServerError as error:
        log.info("%s has no functions for decisions, which take two round trips instead of one: %s", name, error)
        return False
    return (yield from _has_functions())


def _has_functions() -> Steps[bool]:
    results = yield counting_functions()
    check(results)
    return int(results[-1].get_value(0, 0)) == len(functions())


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
        said = " ".join(str(error).split())  # libpq's own words take several lines
        return DatabaseError(f"{name} cannot answer now: {type(error).__name__}: {said}")
    if error.code in BUSY:
        return BusyError(f"{name}: other transactions held these keys for longer than the deadline")
    if error.code in IN_THE_WAY:
        return BusyError(f"{name}: other transactions were in the way too often: {error}")
    remedy = REMEDIES.get(error.code)
    return DatabaseError(f"{name}: {remedy} ({error})" if remedy else f"{name}: {error} (SQLSTATE {error.code})")
