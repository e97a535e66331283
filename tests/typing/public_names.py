"""The public names as a type checker sees them. `make types` reads this file with mypy and pyright; nothing runs it."""

from __future__ import annotations

from typing import assert_type

from headgate import AsyncLimiter, Budget, Decision, Limit, Limiter, Permit, Reservation


def values(limiter: Limiter) -> None:
    """Verbs of threads return values."""
    decision = limiter.hit("key", cost=2)
    assert_type(decision, Decision)
    assert_type(decision.allowed, bool)
    assert_type(decision.remaining, int)
    assert_type(decision.retry_after, float)
    assert_type(limiter.peek("key"), Decision)
    assert_type(limiter.reserve("key"), Reservation)
    with limiter.permit("key") as permit:
        assert_type(permit, Permit)


async def awaited(limiter: AsyncLimiter) -> None:
    """Verbs of event loops are awaited."""
    assert_type(await limiter.hit("key"), Decision)
    assert_type(await limiter.acquire("key", timeout=1.0), Decision)


def decorated(limiter: Limiter) -> None:
    """A decorated function keeps its signature."""

    @limiter.limited(key=lambda number: str(number))
    def double(number: int) -> int:
        return 2 * number

    assert_type(double(4), int)


def limits() -> None:
    """Limits are values."""
    limit = Limit.parse("10/minute")
    assert_type(limit, Limit)
    assert_type(limit.amount, int)
    assert_type(limit.replace(amount=5), Limit)


def budgets(budget: Budget) -> None:
    """A paced function keeps its signature."""

    @budget.paced("search")
    def call(text: str) -> bytes:
        return text.encode()

    assert_type(call("a"), bytes)
