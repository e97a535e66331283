"""Tools for testing code that uses Headgate, and stores that serve it."""

from headgate.testing.clock import ManualClock
from headgate.testing.control import disabled, frozen, reset_all

__all__ = ["ManualClock", "disabled", "frozen", "reset_all"]
