"""Leases: permits charged at the server in advance and spent at memory speed, with a bound."""

from headgate.stores.lease.terms import Lease

__all__ = ["Lease"]
