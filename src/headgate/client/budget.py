"""`Budget`: one third-party API, and its limits, as every worker of a fleet sees them."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, Literal, ParamSpec, TypeVar

from headgate.call import checked_cost
from headgate.client.call_queue import CallQueue
from headgate.client.exchange import Exchange
from headgate.client.fast_path import FastPath
from headgate.client.key_states import KeyStates
from headgate.client.keys import KeyOf
from headgate.client.pacing import checked_headroom, counts_tokens, named, paced
from headgate.client.report import Event, Report, Tally
from headgate.client.retrying import Retries
from headgate.client.sides import Loops, Side, Threads
from headgate.client.usage import Usage
from headgate.clock import Clock
from headgate.errors import InvalidCall
from headgate.limit import Given, as_limits
from headgate.steps import run, run_awaiting
from headgate.stores import MemoryStore, OnError, Store, checked_namespace, checked_on_error, open_store
from headgate.wording import explained, shown

Refusal = Literal["raise", "response"]
P = ParamSpec("P")
R = TypeVar("R")


class Budget:
    """The budget of one API: calls wait for their turn, listen to what the server tells, and retry politely.

    Examples:
        >>> github = Budget("5000/hour", store="redis://cache")
        >>> http = httpx2.Client(transport=Transport(github))

    Without limits, the budget learns those that the server tells; without any told, it finds the rate by refusals.
    """

    @explained
    def __init__(
        self,
        limits: Given = (),
        *,
        key: str | KeyOf = "host",
        usage: Usage | None = None,
        store: Store | str | None = None,
        namespace: str = "budget",
        clock: Clock | None = None,
        on_error: OnError = "local",
        headroom: float = 0.02,
        retries: Retries | None = None,
        refusal: Refusal = "raise",
        on_event: Callable[[Event], object] | None = None,
    ) -> None:
        self.limits = as_limits(limits)
        self.usage = usage
        self.retries = Retries() if retries is None else retries
        self._headroom = checked_headroom(headroom)
        self._check_limits()
        _check_options(self.retries, refusal, on_event, usage)
        self._states = KeyStates(self.limits, self._headroom, key, usage)
        checked_namespace(namespace)
        checked_on_error(on_error)
        self.store = open_store(store, clock)
        self._owned = self.store is not store
        self._tally = Tally(on_event)
        here = MemoryStore(clock=self.store.clock)
        threads, loops = (kind(self.store, here, namespace, on_error) for kind in (Threads, Loops))
        self._threads, self._loops = self._exchange(threads), self._exchange(loops)
        known = self.store.clock, self._tally, self._states, refusal == "raise"
        self.run = FastPath(self._threads, threads, *known).run
        """Sends a request of a transport in this thread, in its turn, and returns the last response."""
        self.run_async = FastPath(self._loops, loops, *known).run_async
        """Sends a request of a transport in the running event loop."""

    def paced(self, key: str, cost: int = 1) -> Callable[[Callable[P, R]], Callable[P, R]]:
        """Return a decorator for any function, `def` or `async def`: each call waits for its turn under this key."""
        if not isinstance(key, str) or not key:
            raise InvalidCall(f'paced takes the key that its calls share, as in paced("search"); got {shown(key)}')
        state = self._states.get(key)
        costs = dict.fromkeys(named(self.limits), checked_cost(cost))

        def decorate(function: Callable[P, R]) -> Callable[P, R]:
            if not callable(function) or inspect.isasyncgenfunction(function):
                raise InvalidCall(f"paced takes a function, def or async def; got {shown(function)}")
            if inspect.iscoroutinefunction(function):

                @functools.wraps(function)
                async def awaited(*args: P.args, **kwargs: P.kwargs) -> Any:  # noqa: ANN401
                    await run_awaiting(self._loops.turn(state, costs))
                    return await function(*args, **kwargs)

                return awaited  # type: ignore[return-value]

            @functools.wraps(function)
            def called(*args: P.args, **kwargs: P.kwargs) -> R:
                run(self._threads.turn(state, costs))
                return function(*args, **kwargs)

            return called

        return decorate

    def report(self) -> Report:
        """Return what this budget has done in this process since it was made."""
        return self._tally.report(self._states.learned())

    def close(self) -> None:
        """Close the store if this budget opened it."""
        if self._owned and hasattr(self.store, "close"):
            self.store.close()

    async def aclose(self) -> None:
        """Close the store if this budget opened it."""
        if self._owned and hasattr(self.store, "aclose"):
            await self.store.aclose()
        self.close()

    def _check_limits(self) -> None:
        for limit in self.limits:
            paced(limit, self._headroom)
            if counts_tokens(limit.name) and self.usage is None:
                raise InvalidCall(f"{limit} counts tokens: add usage=chat, which knows how many tokens a call takes")

    def _exchange(self, side: Side) -> Exchange:
        clock = self.store.clock
        turns = CallQueue(side, clock, self._tally, self._headroom, self.retries.longest_wait)
        return Exchange(turns, side, clock, self._tally, self.retries)

    def __repr__(self) -> str:
        words = "; ".join(map(str, self.limits))
        return f"Budget({words!r})" if words else "Budget()"


def _check_options(retries: object, refusal: object, on_event: object, usage: object) -> None:
    if not isinstance(retries, Retries):
        raise InvalidCall(f"retries takes Retries(attempts=4, longest_wait=60, in_all=120); got {shown(retries)}")
    if refusal not in ("raise", "response"):
        raise InvalidCall(f'refusal is "raise" or "response"; got {shown(refusal)}')
    if on_event is not None and not callable(on_event):
        raise InvalidCall(f"on_event takes a function of one Event; got {shown(on_event)}")
    if usage is not None and (isinstance(usage, type) or not callable(getattr(usage, "request", None))):
        raise InvalidCall(f"usage takes chat, Chat(count=...) or another Usage; got {shown(usage)}")


def checked_budget(given: object, taker: str) -> Budget:
    """Return the budget that a transport was given, or raise `InvalidCall`."""
    if not isinstance(given, Budget):
        raise InvalidCall(f"{taker} takes a Budget; got a value of type {type(given).__name__}")
    return given
