"""Tools for testing code that uses Headgate, and stores that serve it."""

from headgate.testing.clock import ManualClock
from headgate.testing.control import disabled, frozen, reset_all
from headgate.testing.reference import ReferenceStore
from headgate.testing.suite import StoreSuite

__all__ = ["ManualClock", "ReferenceStore", "StoreSuite", "disabled", "frozen", "reset_all"]
