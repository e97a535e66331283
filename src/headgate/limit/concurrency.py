"""`Concurrency`: a limit of how many at once."""

from __future__ import annotations

import re
from typing import Final

from headgate.algorithms import IN_FLIGHT
from headgate.errors import InvalidLimit
from headgate.limit.grammar import parse_fields
from headgate.limit.value import Limit, Period

_SHORT: Final = re.compile(r"^\s*(\d[\d_]*)(?!\s*in(?:\s+|-)flight\b)(?![\d_])", re.IGNORECASE | re.ASCII)


class Concurrency(Limit):
    """So many in flight at once: `Concurrency(20)`, or in words, `Concurrency("20 per user")`.

    `ttl` is for stores on a server: a permit whose holder is not heard of for so long is free again.
    """

    __slots__ = ()

    def __init__(self, given: int | str, *, ttl: Period | None = None, name: str = "") -> None:
        fields = {"amount": given}
        if isinstance(given, str):
            said = parse_fields(_SHORT.sub(r"\1 in flight", given))
            if len(said) != 1 or said[0].pop("algorithm", "") != IN_FLIGHT.name:
                raise InvalidLimit(f"{given!r} is not one limit of what is in flight, such as '20 per user'")
            fields = said[0]
        for field, value in (("per", ttl), ("name", name or None)):
            if value is not None:
                if field in fields:
                    raise InvalidLimit(f"{given!r} says already what is said again as {value!r}")
                fields[field] = value  # type: ignore[assignment]
        super().__init__(**fields, algorithm=IN_FLIGHT.name)  # type: ignore[arg-type]
