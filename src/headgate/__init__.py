"""Headgate: allow or not, and when to come back."""

from typing import TYPE_CHECKING

from headgate._version import __version__
from headgate.call import Call
from headgate.engine import Decision, Permit
from headgate.errors import HeadgateError, InvalidCall, InvalidLimit, RateLimited, StoreError
from headgate.limit import Concurrency, Limit, LimitWarning
from headgate.limiter import Limiter
from headgate.stores import MemoryStore

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

if TYPE_CHECKING:
    from headgate.limiter.async_ import AsyncLimiter
    from headgate.shaper import AsyncShaper, Shaper
    from headgate.stores.leases import Lease
else:
    _LATER = {
        "AsyncLimiter": "headgate.limiter.async_",
        "AsyncShaper": "headgate.shaper",
        "Lease": "headgate.stores.leases",
        "Shaper": "headgate.shaper",
    }
    """Loaded when first asked for: an event loop or dataclasses would double the time that `import headgate` takes."""

    def __getattr__(name: str) -> object:
        if name not in _LATER:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from importlib import import_module

        globals()[name] = found = getattr(import_module(_LATER[name]), name)
        return found

    def __dir__() -> list[str]:
        return sorted({*globals(), *_LATER})
