"""Headgate: allow or not, and when to come back."""

from headgate._version import __version__
from headgate.call import Call
from headgate.engine import Decision
from headgate.errors import HeadgateError, InvalidCall, InvalidLimit, RateLimited, StoreError
from headgate.limit import Limit, LimitWarning
from headgate.limiter import AsyncLimiter, Limiter
from headgate.shaper import AsyncShaper, Shaper
from headgate.stores import MemoryStore
from headgate.stores.lease import Lease

__all__ = [
    "AsyncLimiter",
    "AsyncShaper",
    "Call",
    "Decision",
    "HeadgateError",
    "InvalidCall",
    "InvalidLimit",
    "Lease",
    "Limit",
    "LimitWarning",
    "Limiter",
    "MemoryStore",
    "RateLimited",
    "Shaper",
    "StoreError",
    "__version__",
]
