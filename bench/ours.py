"""Headgate as a contestant, and the empty calls it is measured against."""

from __future__ import annotations

from collections.abc import Callable

from bench.contestant import KEY, LARGE, LARGEST_LOG, PERIOD_WEEKS, Contestant, Names

ALGORITHMS = (
    "token-bucket",
    "gcra",
    "leaky-bucket",
    "fixed-window",
    "sliding-window",
    "sliding-window/60",
    "sliding-log",
)
SHORT_LOG = 2_000
"""Logs are compared over the first hits of a key: the cost of some rivals grows with every stamp."""
LONG_LOG = 200_000
CALL, YES = "limiter.hit(key)", "answer.allowed"
ACQUIRE, OR_NOT = "limiter.acquire(key)", "limiter.acquire(key, timeout=0)"


class Holder:
    """A plain object that has, where a limiter has `hit`, a native method with nothing to do: an empty set's."""

    def __init__(self, method: Callable[[str], None]) -> None:
        self.hit = method


async def empty(key: str) -> None:
    pass


def contestants() -> list[Contestant]:
    return [
        Contestant("empty", _empty, CALL, "answer is None", limits=False),
        Contestant("empty, native object", _empty_direct, "nothing.discard(key)", "answer is None", limits=False),
        Contestant("async empty", _empty_async, "await empty(key)", "answer is None", limits=False),
        Contestant("headgate three limits", _three, CALL, YES),
        Contestant("headgate sliding-log, short", _sync("sliding-log"), CALL, YES, amount=LARGEST_LOG, most=SHORT_LOG),
        *(_path(algorithm, refused) for algorithm in ALGORITHMS for refused in (False, True)),
        *(_awaited(algorithm) for algorithm in ("token-bucket", "leaky-bucket", "fixed-window")),
        Contestant("headgate acquire", _sync("token-bucket"), ACQUIRE, YES, OR_NOT),
        Contestant("async headgate acquire", _async("token-bucket"), f"await {ACQUIRE}", YES, f"await {OR_NOT}"),
        Contestant("headgate ten million keys", _roomy, CALL, YES),
    ]


def _path(algorithm: str, refused: bool) -> Contestant:
    is_log = algorithm == "sliding-log"
    return Contestant(
        f"headgate {algorithm}{', refused' if refused else ''}",
        _sync(algorithm),
        CALL,
        YES,
        drain=_drain if refused else None,
        amount=LARGEST_LOG if is_log else LARGE,
        most=LONG_LOG if is_log and not refused else LARGE // 2,
    )


def _awaited(algorithm: str) -> Contestant:
    return Contestant(f"async headgate {algorithm}", _async(algorithm), f"await {CALL}", YES)


def _async(algorithm: str) -> Callable[[int], Names]:
    def make(amount: int) -> Names:
        from headgate import AsyncLimiter

        return {"limiter": AsyncLimiter(_words(amount, algorithm)), "key": KEY}

    return make


def _sync(algorithm: str) -> Callable[[int], Names]:
    def make(amount: int) -> Names:
        from headgate import Limiter

        return {"limiter": Limiter(_words(amount, algorithm)), "key": KEY}

    return make


def _words(amount: int, algorithm: str, weeks: int = PERIOD_WEEKS) -> str:
    return f"{amount}/{weeks} weeks by {algorithm}"


def _three(amount: int) -> Names:
    from headgate import Limiter

    words = "; ".join(_words(amount, "token-bucket", PERIOD_WEEKS - less) for less in range(3))
    return {"limiter": Limiter(words), "key": KEY}


def _roomy(amount: int) -> Names:
    from headgate import Limiter, MemoryStore

    return {"limiter": Limiter(_words(amount, "token-bucket"), store=MemoryStore(max_keys=10_000_000)), "key": KEY}


def _drain(names: Names, amount: int) -> object:
    return names["limiter"].hit(KEY, cost=amount)


def _empty(amount: int) -> Names:
    return {"limiter": Holder(set().discard), "key": KEY}


def _empty_direct(amount: int) -> Names:
    return {"nothing": set(), "key": KEY}


def _empty_async(amount: int) -> Names:
    return {"empty": empty, "key": KEY}
