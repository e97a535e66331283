"""One conversation with a PostgreSQL server: texts out, results in, by a deadline; for threads and for event loops.

psycopg makes the connections. Queries use its wrapper of libpq, because its cursors have no deadline, and take a round
trip for each statement of a transaction.
"""

from __future__ import annotations

import asyncio
import select
import time
from collections.abc import Generator, Sequence
from typing import Any, Final, TypeVar

from headgate.stores.sql.library import pq, psycopg

T = TypeVar("T")
Results = Sequence[Any]
Steps = Generator[str, Results, T]
"""Yields texts, and is sent the results of their statements."""
FAILURES: Final = (psycopg.Error, OSError, TimeoutError)
"""The exceptions of a connection that is lost, or of a server that does not answer."""


class ServerError(Exception):
    """A statement failed; `code` is its SQLSTATE."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


def check(results: Results) -> None:
    """Raise the error of a statement."""
    for result in results:
        if result.status == pq.ExecStatus.FATAL_ERROR:
            code = result.error_field(pq.DiagnosticField.SQLSTATE) or b""
            message = result.error_field(pq.DiagnosticField.MESSAGE_PRIMARY) or b"no message"
            raise ServerError(code.decode(), message.decode("utf-8", "replace"))


def converse(connection: Any, steps: Steps[T], due: float) -> T:  # noqa: ANN401
    """Run steps in this thread."""
    try:
        text = next(steps)
        while True:
            talk = _talking(connection.pgconn, text)
            try:
                while True:
                    _wait(connection.pgconn.socket, next(talk), due)
            except StopIteration as done:
                text = steps.send(done.value)
    except StopIteration as done:
        value: T = done.value
        return value


async def converse_async(connection: Any, steps: Steps[T]) -> T:  # noqa: ANN401
    """Run steps in the running event loop; the caller has a deadline."""
    try:
        text = next(steps)
        while True:
            talk = _talking(connection.pgconn, text)
            try:
                while True:
                    await _ready(connection.pgconn.socket, next(talk))
            except StopIteration as done:
                text = steps.send(done.value)
    except StopIteration as done:
        value: T = done.value
        return value


def check_idle(connection: Any) -> None:  # noqa: ANN401
    """Raise the error of an idle connection that the server has closed meanwhile: nothing was sent on it."""
    pgconn = connection.pgconn
    poll = select.poll()
    poll.register(pgconn.socket, select.POLLIN)
    while poll.poll(0):
        pgconn.consume_input()  # a notice or a setting; at the end of the connection, an exception


def _talking(pgconn: Any, text: str) -> Generator[bool, None, Results]:  # noqa: ANN401
    """Send a text and return its results; yields True to wait until the socket can be read, False for written."""
    pgconn.send_query(text.encode())
    while pgconn.flush():
        yield False
    results: list[Any] = []
    while True:
        while pgconn.is_busy():
            yield True
            pgconn.consume_input()
        result = pgconn.get_result()
        if result is None:
            return results
        results.append(result)


def _wait(socket: int, reads: bool, due: float) -> None:
    poll = select.poll()
    poll.register(socket, select.POLLIN if reads else select.POLLOUT)
    if not poll.poll(max(0.0, due - time.monotonic()) * 1000):
        raise TimeoutError("no answer within the deadline")


async def _ready(socket: int, reads: bool) -> None:
    loop = asyncio.get_running_loop()
    ready = loop.create_future()
    add, remove = (loop.add_reader, loop.remove_reader) if reads else (loop.add_writer, loop.remove_writer)
    add(socket, _set, ready)
    try:
        await ready
    finally:
        remove(socket)


def _set(ready: asyncio.Future[None]) -> None:
    if not ready.done():
        ready.set_result(None)
