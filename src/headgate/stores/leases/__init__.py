"""Leases: tokens charged at the server in advance and spent at memory speed, with a bound."""

from headgate.stores.leases.terms import Lease

__all__ = ["Lease"]
