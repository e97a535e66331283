"""Many threads that ask at once, and callers that die on their way."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any, Final

from headgate.errors import StoreError

THREADS: Final = 40
EACH: Final = 50
"""The requests of each thread."""
LONGEST: Final = 60.0
"""Seconds after which a contest is given up."""


def admitted_at_once(connect: Callable[[], object], admit: Callable[[], bool]) -> int:
    """Return how many requests are admitted if all threads begin to ask at one instant.

    Each thread calls `connect` before that, so that no connection has to be made during the contest.
    """
    start, over = threading.Barrier(THREADS), threading.Event()
    counts: list[int] = []
    problems: list[Exception] = []

    def ask() -> None:
        try:
            connect()
            start.wait(LONGEST)
            counts.append(_ask(admit, over))
        except threading.BrokenBarrierError:
            pass  # another thread tells its problem
        except Exception as problem:
            problems.append(problem)
            over.set()
            start.abort()

    threads = [threading.Thread(target=ask, daemon=True) for _ in range(THREADS)]
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:  # also when the user interrupts: no thread may write after the keys are deleted
        over.set()
        start.abort()
        for thread in threads:
            if thread.ident is not None:
                thread.join()
    if problems:
        raise problems[0]
    return sum(counts)


def _ask(admit: Callable[[], bool], over: threading.Event) -> int:
    until, admitted = time.monotonic() + LONGEST, 0
    for _ in range(EACH):
        if over.is_set():
            break
        admitted += admit()
        if time.monotonic() > until:
            raise StoreError(f"the server is too slow: {THREADS * EACH:,} requests took more than {LONGEST:g} s")
    return admitted


class Died(Exception):
    """A caller died after a command."""


def dying(client: Any, after: int) -> Any:  # noqa: ANN401 - clients of redis-py
    """Return a client on the same connections whose caller dies when its `after`-th command, or pipeline, is over."""
    import redis

    left = after

    def live_on() -> None:
        nonlocal left
        left -= 1
        if not left:
            raise Died

    class Dying(redis.Redis):
        def execute_command(self, *arguments: Any, **options: Any) -> Any:  # noqa: ANN401
            answer = super().execute_command(*arguments, **options)  # type: ignore[no-untyped-call]
            live_on()
            return answer

        def pipeline(self, *arguments: Any, **options: Any) -> Any:  # noqa: ANN401
            pipe = super().pipeline(*arguments, **options)
            execute = pipe.execute

            def execute_and_die(*arguments: Any, **options: Any) -> Any:  # noqa: ANN401
                answer = execute(*arguments, **options)
                live_on()
                return answer

            setattr(pipe, "execute", execute_and_die)  # noqa: B010 - mypy refuses the plain assignment
            return pipe

    return Dying(connection_pool=client.connection_pool)
