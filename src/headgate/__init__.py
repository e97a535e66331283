"""Headgate: allow or not, and when to come back."""

from typing import TYPE_CHECKING

from headgate.algorithms import Verdict
from headgate.call import Call
from headgate.clock import Clock
from headgate.engine import Decision, Permit
from headgate.errors import (
    BudgetExhausted,
    HeadgateError,
    InvalidCall,
    InvalidLimit,
    InvalidPolicy,
    Overloaded,
    RateLimited,
    StoreError,
)
from headgate.limit import Limit, LimitWarning
from headgate.limiter import Counts, Limiter, Reservation
from headgate.stores import MemoryStore, Store
from headgate.version import __version__

__all__ = [
    "AsyncLimiter",
    "AsyncShaper",
    "Budget",
    "BudgetExhausted",
    "Call",
    "Clock",
    "Counts",
    "Decision",
    "HeadgateError",
    "InvalidCall",
    "InvalidLimit",
    "InvalidPolicy",
    "Lease",
    "Limit",
    "LimitWarning",
    "Limiter",
    "LoadShedder",
    "MemoryStore",
    "Overloaded",
    "Permit",
    "Policy",
    "RateLimited",
    "Reservation",
    "Shaper",
    "Store",
    "StoreError",
    "Verdict",
    "__version__",
]

if TYPE_CHECKING:
    from headgate.client import Budget
    from headgate.limiter.async_ import AsyncLimiter
    from headgate.policy import Policy
    from headgate.shaper import AsyncShaper, Shaper
    from headgate.shed import LoadShedder
    from headgate.stores import Lease
    from headgate.stores import PostgresStore as PostgresStore
    from headgate.stores import RedisStore as RedisStore
    from headgate.stores import SharedStore as SharedStore
    from headgate.stores import SqliteStore as SqliteStore
else:
    _LATER = {
        "AsyncLimiter": "headgate.limiter.async_",
        "AsyncShaper": "headgate.shaper",
        "Budget": "headgate.client",
        "Lease": "headgate.stores",
        "LoadShedder": "headgate.shed",
        "Policy": "headgate.policy",
        "PostgresStore": "headgate.stores",
        "RedisStore": "headgate.stores",
        "Shaper": "headgate.shaper",
        "SharedStore": "headgate.stores",
        "SqliteStore": "headgate.stores",
    }
    """Loaded when first asked for: an event loop or dataclasses would double the time that `import headgate` takes.

    RedisStore and PostgresStore need a library, SharedStore a system like Linux: `import *` leaves such stores out.
    """
    _RENAMED = {"Concurrency": "write the limit in words, as in Limiter('20 in flight as user')"}
    """Words of earlier versions, and what to write now."""

    def __getattr__(name: str) -> object:
        if name in _RENAMED:
            raise ImportError(f"headgate has no {name}: {_RENAMED[name]}")
        if name not in _LATER:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from importlib import import_module

        globals()[name] = found = getattr(import_module(_LATER[name]), name)
        return found

    def __dir__() -> list[str]:
        return sorted({*globals(), *_LATER})
