"""Dramatiq: actors that wait for their turn.

broker.add_middleware(Throttling())

@dramatiq.actor(throttle=Throttle(limiter, key=lambda customer, *_: customer, wait=2.0))
def charge(customer, amount): ...
"""

from __future__ import annotations

import functools
import math
import threading
from collections.abc import Callable
from typing import Any, Final

from headgate.wording import requiring

with requiring("headgate.tasks.dramatiq", "dramatiq"):
    from dramatiq import Actor, Broker, Middleware
    from dramatiq.broker import MessageProxy
    from dramatiq.middleware import MiddlewareError, SkipMessage


from headgate.tasks.throttle import Throttle, Turn, arguments_of

__all__ = ["Throttle", "Throttling"]

IN_LINE: Final = "headgate_in_line"
"""The option of a message that keeps its place in line."""


class Throttling(Middleware):
    """Middleware for the actor option `throttle`: add it to the broker before the actors are declared.

    A message that would wait for longer than its throttle's `wait` is enqueued again with a delay. Dramatiq logs the
    message as skipped: it uses no retry and calls no failure callback, and the result comes later.
    """

    def __init__(self) -> None:
        self._here = threading.local()

    @property
    def actor_options(self) -> set[str]:
        """The actor options of this middleware."""
        return {"throttle"}

    def before_declare_actor(self, broker: Broker, actor: Actor[..., Any]) -> None:
        """Wrap the function of an actor that has a throttle."""
        throttle = actor.options.get("throttle")
        if throttle is None:
            return
        if not isinstance(throttle, Throttle):  # Dramatiq passes on no other error from here
            raise MiddlewareError(f"{actor.actor_name}: throttle must be a headgate.tasks.Throttle; got {throttle!r}")
        actor.fn = self._throttled(actor, throttle, broker)

    def before_process_message(self, broker: Broker, message: MessageProxy) -> None:
        """Remember the message that this thread processes."""
        self._here.message = message

    def after_process_message(
        self,
        broker: Broker,
        message: MessageProxy,
        *,
        result: Any = None,  # noqa: ANN401
        exception: BaseException | None = None,
    ) -> None:
        """Forget the message."""
        self._here.message = None

    def after_skip_message(self, broker: Broker, message: MessageProxy) -> None:
        """Forget the message."""
        self._here.message = None

    def _throttled(self, actor: Actor[..., Any], throttle: Throttle, broker: Broker) -> Callable[..., Any]:
        function = actor.fn

        @functools.wraps(function)
        def run(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
            given, by_name = arguments_of(function, *args, **kwargs)
            message = self._message_of(actor)
            if message is None:
                turn = throttle.take_or_raise(*given, **by_name)
            else:
                # Removed, so that a retry after an error, which has the same options, takes a new place.
                turn = throttle.take(*given, came_back=message.options.pop(IN_LINE, False), **by_name)
                if not turn:
                    _hand_back(broker, message, turn)
            with turn:
                return function(*args, **kwargs)

        return run

    def _message_of(self, actor: Actor[..., Any]) -> MessageProxy | None:
        """Return the message for which the worker calls an actor; None if an actor calls it as a function."""
        message: MessageProxy | None = getattr(self._here, "message", None)
        if message is None or message.actor_name != actor.actor_name:
            return None
        self._here.message = None
        return message


def _hand_back(broker: Broker, message: MessageProxy, turn: Turn) -> None:
    again = message.copy(options={IN_LINE: turn.in_line})
    broker.enqueue(again, delay=math.ceil(turn.come_back * 1000))
    message.options["store_results"] = False  # the result of a skipped message would be None
    raise SkipMessage(f"rate limited: handed back for {turn.come_back:.3f} s")
