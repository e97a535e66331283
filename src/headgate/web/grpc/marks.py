"""Limits of single methods: marks on a servicer's methods, which the interceptor reads when a method is called.

A limited method also checks that the interceptor has read its marks: a server may have no interceptor, and another one
may wrap the handler and hide the marks.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from typing import Any, Final, NamedTuple, TypeVar

from headgate.errors import HeadgateError
from headgate.web.callables import endpoint_within, full_name, mark_of, note_within, refuse_bare
from headgate.web.endpoint import EndpointLimit

MARKS: Final = "__headgate_limits__"
Marked = TypeVar("Marked", bound=Callable[..., Any])


class Marks(NamedTuple):
    """The limits of a method; empty if it is exempt."""

    calls: tuple[EndpointLimit, ...] = ()
    messages: tuple[EndpointLimit, ...] = ()


def limited(limits: Any, *, key: Any = "ip", messages: bool = False, **rule: Any) -> Callable[[Marked], Marked]:  # noqa: ANN401
    """Limit a servicer's method. Any field of a policy's rule can be given by name.

    Functions (`limits`, `key`, `cost`, `exempt`) take an `Rpc`. `messages` counts each message that a client streams,
    in place of the call. Several limits on one method are one decision: all are charged, or none is. They need the
    interceptor.
    """
    refuse_bare(limits, sys._getframe(1))
    limit = EndpointLimit(limits, {"key": key, **rule})

    def decorate(method: Marked) -> Marked:
        marks = marks_of(method) or Marks()
        calls, streamed = ((), (limit,)) if messages else ((limit,), ())
        every = Marks((*calls, *marks.calls), (*streamed, *marks.messages))
        made: Marked = _checking(without_check(method), every)
        return made

    return decorate


def exempt(method: Marked) -> Marked:
    """Exempt a method from the default limits."""
    target: Any = without_check(method)
    if inspect.ismethod(target):  # a mark on a bound method would be its class's
        target = functools.partial(target)
    setattr(target, MARKS, Marks())
    marked: Marked = target
    return marked


def marks_of(method: Any) -> Marks | None:  # noqa: ANN401
    """Return the marks of a method, also through `functools.partial`."""
    marks: Marks | None = mark_of(method, MARKS)
    return marks


def without_check(method: Any) -> Any:  # noqa: ANN401
    """Return the method that `limited` was given; any other method itself."""
    function = getattr(method, "__func__", method)
    within = endpoint_within(function)
    if within is function:
        return method
    return within if function is method else within.__get__(method.__self__)


def _checking(method: Any, marks: Marks) -> Any:  # noqa: ANN401
    """Return a method of the same kind that has these marks and checks them."""

    def check(context: Any) -> None:  # noqa: ANN401
        read = getattr(context, "headgate_marks", None)  # contexts of other interceptors pass attributes on
        if read is None or not {*marks.calls, *marks.messages} <= {*read.calls, *read.messages}:
            raise HeadgateError(
                f"{full_name(method)} has limits that nothing has asked about: add a RateLimitInterceptor to the "
                "interceptors of the server, after those that wrap handlers"
            )

    def plain(*args: Any) -> Any:  # noqa: ANN401
        check(args[-1])
        return method(*args)

    async def awaited(*args: Any) -> Any:  # noqa: ANN401
        check(args[-1])
        return await method(*args)

    async def streamed(*args: Any) -> AsyncIterator[Any]:  # noqa: ANN401
        check(args[-1])
        async with aclosing(method(*args)) as responses:
            async for response in responses:
                yield response

    made: Any = plain
    if inspect.iscoroutinefunction(method):
        made = awaited
    elif inspect.isasyncgenfunction(method):
        made = streamed
    functools.update_wrapper(made, method)
    setattr(made, MARKS, marks)
    note_within(made, method)
    return made
