"""The names that are used of redis-py, from 5.0.1 on, and the reading of its errors."""

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
    "FAILURES", "NONSENSE", "AskError", "MovedError", "NoBackoff", "NoScriptError", "ReadOnlyError", "ResponseError",
    "Retry", "TryAgainError", "redis", "understood",
]  # fmt: skip

FAILURES: Final = (RedisError, RedisClusterException, OSError, TimeoutError, EOFError)
"""The exceptions of a command to a server that is away or failing."""
NONSENSE: Final = (ValueError, RecursionError)
"""The exceptions of redis-py over a reply that no Redis or Valkey server sends, such as arrays nested without end."""


def understood(error: Exception) -> Exception:
    """Return the error by its own class, if redis-py raised a plain `ResponseError`.

    Older redis-py knows redirections only in its own cluster client; Redis 6.2 wraps the errors of a script.
    """
    code, _, rest = str(error).partition(" ")
    if type(error) is not ResponseError:
        return error
    for name, kind in (("MOVED", MovedError), ("ASK", AskError), ("TRYAGAIN", TryAgainError)):
        if code == name:
            meant: Exception = kind(rest)
            return meant
    return ReadOnlyError(str(error)) if "-READONLY " in rest else error
