"""Functions of a PostgreSQL server that make the whole decision over one limit, in one round trip.

There is one for each `.sql` file of an algorithm; the client runs the reference steps for all other decisions. The name
of a function contains a hash of its text: a server never runs the function of another version of Headgate.
"""

from __future__ import annotations

import hashlib
from functools import cache
from typing import Final, NamedTuple

from headgate.clock import HOUR, MINUTE
from headgate.limit import Limit
from headgate.stores.kernels import fill, read_sections
from headgate.stores.sql.schema import COLUMNS, TABLE

KERNELS: Final = (("bucket", "kernel"), ("window", "fixed"))
"""The algorithms that have a function: the kind of the step, and the name of its kernel."""


class Function(NamedTuple):
    """A function of the server."""

    name: str
    source: str
    params: list[str]
    """The parameters of a limit that follow the cost."""


class FunctionCall(NamedTuple):
    """A function, and the arguments of one limit."""

    name: str
    params: str


@cache
def functions() -> dict[tuple[str, str], Function]:
    """Return every function, by kind and kernel."""
    driver = read_sections(__package__, "driver.sql").codes["function"]
    return {kernel: _function(driver, *kernel) for kernel in KERNELS}


def function_for(limit: Limit) -> FunctionCall | None:
    """Return how the server decides over a limit; None if the client must."""
    if limit.block_us:
        return None
    found = functions().get((limit.step.KIND, limit.step.kernel(limit.params)))
    if found is None:
        return None
    return FunctionCall(found.name, ",".join(str(getattr(limit.params, name)) for name in found.params))


def _function(driver: str, kind: str, kernel: str) -> Function:
    heads, codes = read_sections(f"headgate.algorithms.{kind}", f"{kernel}.sql")
    params, state = heads["params"].split(), heads["state"].split()
    source = fill(
        driver,
        PARAMS=", ".join(f'"{name}" bigint' for name in params),
        LOCALS=" ".join(f"{name} bigint := 0;" for name in (*state, *heads["locals"].split())),
        READ=" ".join(f"{name} := split_part(stored, ' ', {at})::bigint;" for at, name in enumerate(state, 1)),
        ANSWER=codes["answer"],
        CHARGE=codes["charge"],
        WRITTEN=" || ' ' || ".join(state),
        BURST=f'"{params[0]}"',
        TABLED=TABLE,
        COLUMNS=COLUMNS,
        MINUTE=str(MINUTE),
        HOUR=str(HOUR),
    )  # fmt: skip
    name = f"headgate_{kind if kernel == 'kernel' else kernel}_{hashlib.sha256(source.encode()).hexdigest()[:12]}"
    return Function(name, fill(source, NAMED=name), params)
