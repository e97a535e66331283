"""redis-py: what is used of it, from 5.0.1 on, and how its errors are understood."""

from __future__ import annotations

from typing import Final

from headgate.errors import StoreError
from headgate.wording import missing

try:
    import redis
    import redis.asyncio
    from redis.backoff import NoBackoff
    from redis.exceptions import (
        AskError,
        MovedError,
        NoScriptError,
        ReadOnlyError,
        RedisClusterException,
        RedisError,
        ResponseError,
        TryAgainError,
    )  # fmt: skip
    from redis.retry import Retry
except ImportError as reason:
    raise StoreError(missing("a Redis store", "redis", "redis")) from reason

__all__ = [
    "FAILURES", "AskError", "MovedError", "NoBackoff", "NoScriptError", "ReadOnlyError", "ResponseError", "Retry",
    "TryAgainError", "redis", "understood",
]  # fmt: skip

FAILURES: Final = (RedisError, RedisClusterException, OSError, TimeoutError, EOFError)
"""What asking a server can end with when it is away, or unwell."""


def understood(error: Exception) -> Exception:
    """The error by its own class, where redis-py does not tell.

    Older ones know redirections only from their own cluster client; Redis 6.2 wraps what a script ran into.
    """
    code, _, rest = str(error).partition(" ")
    if type(error) is not ResponseError:
        return error
    for name, kind in (("MOVED", MovedError), ("ASK", AskError), ("TRYAGAIN", TryAgainError)):
        if code == name:
            meant: Exception = kind(rest)
            return meant
    return ReadOnlyError(str(error)) if "-READONLY " in rest else error
