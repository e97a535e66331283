"""Waiting for several subjects in one decision: all of them are charged, or none is.

A promise would charge a subject long before the message that waits for another one goes, and so take it from others. So
a caller takes what fits now, or waits in the queue of the subject that refuses it: only the first of each queue asks
the store, and goes on to another queue if another subject refuses it then.
"""

from __future__ import annotations

from headgate.algorithms import UNKNOWN
from headgate.engine import Decision
from headgate.limiter.caller import Caller
from headgate.limiter.wait_queue import LAST_LOOK, NO_WAIT, WaitQueue, refusal_of
from headgate.steps import Steps
from headgate.waiting import checked_wait


def acquire_all(queue: WaitQueue, caller: Caller, timeout: float | None) -> Steps[Decision]:
    """Admit a caller as soon as all of its calls fit, or refuse it."""
    due_us = None if timeout is None else queue.clock.now_us() + checked_wait(timeout)
    decision: Decision = yield caller.ask(NO_WAIT)
    while not _is_final(queue, decision, due_us) and queue.waiting < queue.most:
        caller.key = _refusing(decision)
        first = queue.join(caller) is None
        try:
            if not first and not (yield caller.wait_for_turn(due_us)):
                decision = refusal_of(decision)
                break
            decision = yield from _ask_in_turn(queue, caller, decision, due_us, first)
        finally:
            queue.leave(caller)
    return caller.count(decision)


def _ask_in_turn(
    queue: WaitQueue, caller: Caller, refused: Decision, due_us: int | None, known: bool
) -> Steps[Decision]:
    """Ask as the first of a queue, until the caller is admitted, or another subject refuses it; `known`: just now."""
    decision = refused if known else (yield caller.ask(NO_WAIT))
    while not _is_final(queue, decision, due_us) and _refusing(decision) == caller.key:
        now = queue.clock.now_us()
        if decision.retry_us == UNKNOWN:
            at = now + LAST_LOOK if due_us is None else min(now + LAST_LOOK, due_us)
            yield caller.wait_for_turn(at)
        else:
            yield caller.sleep_until(now + decision.retry_us)
        decision = yield caller.ask(NO_WAIT)
    return decision


def _is_final(queue: WaitQueue, decision: Decision, due_us: int | None) -> bool:
    return decision.allowed or decision.never or queue.too_late(decision, due_us)


def _refusing(decision: Decision) -> str:
    """Return the key of the call that refuses for longest."""
    each = zip(decision.calls, decision.verdicts, strict=True)
    return next(call.key for call, verdict in each if call.limit == decision.binding and not verdict.allowed)
