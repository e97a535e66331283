"""What a store is: a home for states that opens gates on them."""

from __future__ import annotations

from typing import Protocol

from headgate.engine import Gate
from headgate.limit import Limit


class Store(Protocol):
    """A home for states."""

    def gate(self, namespace: str, limits: tuple[Limit, ...]) -> Gate:
        """Limits bound to their states under a namespace; the same identity is the same budget."""
        ...
