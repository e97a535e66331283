"""Tools to test code that uses Headgate, and suites to test stores and web edges."""

from headgate.testing.clock import ManualClock
from headgate.testing.control import disabled, frozen, refusing, reset_all
from headgate.testing.edges import EdgeSuite, MiddlewareSuite
from headgate.testing.reference import ReferenceStore
from headgate.testing.suite import StoreSuite

__all__ = [
    "EdgeSuite",
    "ManualClock",
    "MiddlewareSuite",
    "ReferenceStore",
    "StoreSuite",
    "disabled",
    "frozen",
    "refusing",
    "reset_all",
]
