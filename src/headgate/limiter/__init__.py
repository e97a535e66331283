"""The limiters, and the promises of departures that shapers make too.

`AsyncLimiter` is in `async_`, because that imports asyncio.
"""

from headgate.limiter.counts import Counts
from headgate.limiter.promises import Promise, Promises, depart
from headgate.limiter.reservation import Reservation
from headgate.limiter.sync import Limiter

__all__ = ["Counts", "Limiter", "Promise", "Promises", "Reservation", "depart"]
