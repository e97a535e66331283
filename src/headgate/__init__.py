"""Headgate: allow or not, and when to come back."""

from headgate._version import __version__
from headgate.call import Call
from headgate.engine import Decision, Permit
from headgate.errors import HeadgateError, InvalidCall, InvalidLimit, RateLimited, StoreError
from headgate.limit import Concurrency, Limit, LimitWarning
from headgate.limiter import AsyncLimiter, Limiter
from headgate.shaper import AsyncShaper, Shaper
from headgate.stores import MemoryStore
from headgate.stores.lease import Lease

__all__ = [
    "AsyncLimiter",
    "AsyncShaper",
    "Call",
    "Concurrency",
    "Decision",
    "HeadgateError",
    "InvalidCall",
    "InvalidLimit",
    "Lease",
    "Limit",
    "LimitWarning",
    "Limiter",
    "MemoryStore",
    "Permit",
    "RateLimited",
    "Shaper",
    "StoreError",
    "__version__",
]
