"""Tools for testing code that uses Headgate, and stores that serve it."""

from headgate.testing.clock import ManualClock

__all__ = ["ManualClock"]
