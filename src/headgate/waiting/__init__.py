"""Wait for an instant in a thread, and in a fair queue; `timers` waits in an event loop, and imports asyncio."""

from headgate.waiting.fair_queue import FairQueue
from headgate.waiting.sleep import checked_wait, sleep_until, warn_if_in_loop

__all__ = ["FairQueue", "checked_wait", "sleep_until", "warn_if_in_loop"]
