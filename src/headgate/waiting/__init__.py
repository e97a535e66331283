"""Wait for an instant in a thread; `timers` waits in an event loop, and imports asyncio."""

from headgate.waiting.sleep import checked_wait, sleep_until

__all__ = ["checked_wait", "sleep_until"]
