"""Leases: tokens charged at the server in advance and spent in memory, with a bound on what the fleet admits."""

from headgate.stores.leases.terms import Lease

__all__ = ["Lease"]
