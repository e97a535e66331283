"""The limiters: the front of the house. `AsyncLimiter` stands in `async_`, which brings an event loop."""

from headgate.limiter.sync import Limiter

__all__ = ["Limiter"]
