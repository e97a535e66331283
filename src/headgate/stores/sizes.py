"""How large a store may become, as its arguments say."""

from __future__ import annotations

from headgate.errors import InvalidCall


def check_sizes(**given: int | None) -> None:
    """An error that names what is no number of keys or bytes; None is the store's own choice."""
    for name, value in given.items():
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or not 0 < value < 2**40):
            raise InvalidCall(f"{name} must be a whole number from 1 to 2**40; got {value!r}")
