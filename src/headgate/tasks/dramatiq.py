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


from headgate.tasks.throttle import Throttle, arguments_of
from headgate.tasks.turn import Turn

__all__ = ["Throttle", "Throttling"]

IN_LINE: Final = "headgate_in_line"
"""The option of a message whose place in line is kept."""


class Throttling(Middleware):
    """Gives actors the option `throttle`: add it to the broker before they are declared.

    A message that would wait for longer than its throttle's `wait` is enqueued again with a delay. Dramatiq logs it as
    skipped: no retry is used, no callback is told of a failure, and the result is still awaited.
    """

    def __init__(self) -> None:
        self._here = threading.local()

    @property
    def actor_options(self) -> set[str]:
        """What an actor may be given."""
        return {"throttle"}

    def before_declare_actor(self, broker: Broker, actor: Actor[..., Any]) -> None:
        """Have the actor ask first."""
        throttle = actor.options.get("throttle")
        if throttle is None:
            return
        if not isinstance(throttle, Throttle):  # of all errors here, Dramatiq passes on only its own
            raise MiddlewareError(f"{actor.actor_name}: throttle must be a headgate.tasks.Throttle; got {throttle!r}")
        actor.fn = self._throttled(actor, throttle, broker)

    def before_process_message(self, broker: Broker, message: MessageProxy) -> None:
        """Remember what this thread works on."""
        self._here.message = message

    def after_process_message(
        self,
        broker: Broker,
        message: MessageProxy,
        *,
        result: Any = None,  # noqa: ANN401
        exception: BaseException | None = None,
    ) -> None:
        """Forget it."""
        self._here.message = None

    def after_skip_message(self, broker: Broker, message: MessageProxy) -> None:
        """Forget it."""
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
                # Taken out, so that an error's retry, which sends the same options, begins anew.
                turn = throttle.take(*given, came_back=message.options.pop(IN_LINE, False), **by_name)
                if not turn:
                    _hand_back(broker, message, turn)
            with turn:
                return function(*args, **kwargs)

        return run

    def _message_of(self, actor: Actor[..., Any]) -> MessageProxy | None:
        """What the worker calls an actor for; None where another actor calls it as a function, or it does itself."""
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
