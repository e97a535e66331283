"""Request classes: which requests a busy service serves first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from headgate.errors import InvalidCall
from headgate.wording import shown

ORDER: Final = ("critical_plus", "critical", "sheddable_plus", "sheddable")
"""The classes of Google's and Netflix's services, the most important first."""


class Classes:
    """An order of classes. The first half, rounded up, is critical."""

    def __init__(self, order: Sequence[str] = ORDER) -> None:
        if isinstance(order, str) or not order or len(set(order)) != len(order):
            raise InvalidCall(f"classes need different names, the most important first; got {shown(order)}")
        for name in order:
            if not isinstance(name, str) or not name:
                raise InvalidCall(f"the name of a class is a text; got {shown(name)}")
        self.order = tuple(order)
        self.ranks = {name: rank for rank, name in enumerate(self.order)}
        """0 for the most important class."""
        self.critical = (len(self.order) + 1) // 2
        """Classes with a lower rank than this are critical."""
        self.default_rank = min(self.critical, len(self.order) - 1)
        """The rank of a request that names no class: the first that is not critical."""

    def unknown(self, name: object) -> InvalidCall:
        """Return the error for a class that does not exist."""
        return InvalidCall(f"unknown class {shown(name)}: the classes are {', '.join(self.order)}")
