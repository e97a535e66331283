"""The check of `max_keys`, `max_bytes` and the like, the bounds of a store."""

from __future__ import annotations

from headgate.errors import InvalidCall


def check_sizes(**given: int | None) -> None:
    """Raise `InvalidCall` for a wrong number of keys or bytes; None leaves the choice to the store."""
    for name, value in given.items():
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or not 0 < value < 2**40):
            raise InvalidCall(f"{name} must be a whole number from 1 to 2**40; got {value!r}")
