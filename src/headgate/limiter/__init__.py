"""The limiters: the front of the house."""

from headgate.limiter.async_ import AsyncLimiter
from headgate.limiter.sync import Limiter

__all__ = ["AsyncLimiter", "Limiter"]
