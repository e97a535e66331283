"""The limiters. `AsyncLimiter` is in `async_`, because that imports asyncio."""

from headgate.limiter.sync import Limiter

__all__ = ["Limiter"]
