"""The statements of a decision in PostgreSQL, as texts: one text is one round trip, whatever proxy is in between.

All texts in them are names of this package's own making, which have neither quotes nor backslashes, and integers.
Everything that outlives a statement ends with its transaction, since a proxy may give the next one to another session.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from headgate.stores.sql.bound import Changes, Remote, Task
from headgate.stores.sql.functions import functions
from headgate.stores.sql.names import Name
from headgate.stores.sql.rows import Row
from headgate.stores.sql.schema import COLUMNS, POSTGRES, TABLE
from headgate.stores.sql.sweeping import MOST_SWEPT

STALLED: Final = 1000
"""Milliseconds after which the server ends the transaction of a client that stalls with locked keys."""
MAKING_LOCK: Final = 0x6865616467617465
"""The advisory lock of a process that makes the table."""
_MAKING: Final = f"SELECT pg_advisory_xact_lock({MAKING_LOCK})"
MAKE: Final = f"BEGIN;{_MAKING};{POSTGRES}COMMIT"
SWEEP: Final = (
    f"DELETE FROM {TABLE} WHERE ctid = ANY(ARRAY(SELECT ctid FROM {TABLE} WHERE expires_at < {{now}} "  # noqa: S608
    f"ORDER BY expires_at LIMIT {MOST_SWEPT} FOR UPDATE SKIP LOCKED))"
)
COMMIT: Final = "COMMIT"


def making_functions() -> str:
    """Make the functions that are not there; the statements of a text are one transaction."""
    return f"{_MAKING};{''.join(function.source for function in functions().values())}"


def counting_functions() -> str:
    """Return a query for the number of functions that are there and that the role may call."""
    names = ",".join(f"'{function.name}'" for function in functions().values())
    usable = "pg_function_is_visible(oid) AND has_function_privilege(oid, 'EXECUTE')"
    return f"SELECT count(*) FROM pg_proc WHERE proname IN ({names}) AND {usable}"  # noqa: S608


def reading(names: Sequence[Name]) -> str:
    """Return a query for the server's instant and, with the index of each, the rows that are there."""
    parts = ["SELECT -1, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint::text, 0"]
    parts += [f"SELECT {at}, state, blocked_until FROM {TABLE} WHERE {_is(name)}" for at, name in enumerate(names)]  # noqa: S608
    return " UNION ALL ".join(parts)


def opening(names: Sequence[Name], locks: Sequence[int], patience_ms: int) -> str:
    """Begin a transaction, lock the keys, and only then read: a query sees what was committed before it began.

    Rows that do not exist cannot be locked, so the keys are, by advisory locks.
    """
    locked = ",".join(f"pg_advisory_xact_lock({number})" for number in locks)
    return (
        f"BEGIN ISOLATION LEVEL READ COMMITTED;SELECT set_config('lock_timeout','{patience_ms}',true),"
        f"set_config('idle_in_transaction_session_timeout','{STALLED}',true),{locked};{reading(names)}"
    )


def calling(task: Task[Any], remote: Remote[Any], patience_ms: int, now: int | None) -> str:
    """Decide by a function of the server, and commit."""
    [(namespace, key, limit)], [lock] = task.names, task.locks
    instant = "NULL" if now is None else now
    return (
        f"BEGIN ISOLATION LEVEL READ COMMITTED;SELECT {remote.function.name}('{namespace}','{key}','{limit}',"
        f"{lock},{patience_ms},{instant},{remote.cost},{remote.function.params});COMMIT"
    )


def closing(changes: Changes) -> str:
    """Write rows and commit."""
    parts = [f"DELETE FROM {TABLE} WHERE {_is(name)}" for name in changes.gone]  # noqa: S608
    if changes.rows:
        parts.append(
            f"INSERT INTO {TABLE} ({COLUMNS}) VALUES {','.join(map(_values, changes.rows))} "  # noqa: S608
            "ON CONFLICT (namespace, key, limit_name) DO UPDATE SET state = excluded.state, "
            "blocked_until = excluded.blocked_until, remaining = excluded.remaining, burst = excluded.burst, "
            "decided_at = excluded.decided_at, expires_at = excluded.expires_at"
        )
    return ";".join([*parts, COMMIT])


def sweeping(now: int | None) -> str:
    """Delete a batch of expired rows; rows that another transaction has locked are left to it."""
    return SWEEP.format(now="now()" if now is None else f"to_timestamp({now} / 1000000.0)")


def clearing(namespace: str) -> str:
    """Delete all rows of a namespace."""
    return f"DELETE FROM {TABLE} WHERE namespace = '{namespace}'"  # noqa: S608


def _is(name: Name) -> str:
    return f"namespace = '{name.namespace}' AND key = '{name.key}' AND limit_name = '{name.limit}'"


def _values(row: Row) -> str:
    (namespace, key, limit), state, blocked, remaining, burst, decided, expires = row
    return (
        f"('{namespace}','{key}','{limit}','{state}',{blocked},{remaining},{burst},"
        f"to_timestamp({decided}/1000000.0),to_timestamp({expires}/1000000.0))"
    )
