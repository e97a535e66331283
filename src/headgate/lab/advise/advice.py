"""`Advice`: the recommended limit, as a value and as a text."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass
from typing import Final

from headgate.lab.advise.needs import Needs
from headgate.lab.advise.sizes import Size
from headgate.wording import columns, shown

WIDTH: Final = 100
HOMES: Final = {
    "memory": "the memory of one process, its tables filled to three quarters",
    "shared": "shared memory, its tables filled to three quarters",
    "redis": "Redis or Valkey, names and values",
}


@dataclass(frozen=True)
class Advice:
    """The recommended limit. `str` is the text that `headgate advise` prints."""

    needs: Needs
    algorithm: str
    limit: str
    """Ready for a `Limiter`; with a queue, for a `Shaper`."""
    waits: bool
    """Whether requests wait, in place of being refused."""
    reasons: tuple[str, ...]
    warnings: tuple[str, ...]
    sizes: tuple[Size, ...]

    @property
    def policy(self) -> str:
        """A policy with this limit, in YAML."""
        return policy_of(self.limit, self.waits)

    def __str__(self) -> str:
        return "\n".join(
            [
                f"{self.algorithm}: {self.limit}",
                "",
                *_points("Why", self.reasons),
                *_points("Beware", self.warnings),
                f"States of {self.needs.clients:,} clients in {HOMES[self.needs.store]}",
                *self._table(),
                "",
                "Policy",
                self.policy.rstrip(),
            ]
        )

    def _table(self) -> list[str]:
        rows = [("", "bytes a key", "in all", f"any {self.needs.period} may see")]
        for size in self.sizes:
            bytes_ = (f"{size.key_bytes:,}", megabytes(size.total)) if size.key_bytes else ("does not fit", "-")
            rows.append((size.algorithm, *bytes_, size.sees))
        return [f"  {line}" for line in columns(rows)]


def policy_of(limit: str, waits: bool = False, key: str = "ip", cost: str | None = None) -> str:
    """Return a policy that limits each address, or each user; it tells what else a log was read by.

    The fields of a log are not those of a request: where they are the key or the cost, a comment asks for these.
    """
    asked = "" if key in ("ip", "user") else f"  # write the key that the log has as {shown(key)}"
    costs = "" if cost is None else f"    # write the cost that the log has as {shown(cost)}\n"
    act = "    act: delay\n" if waits else ""
    key = key if key == "user" else "ip"
    return f"version: 1\nrules:\n  - name: api\n    key: {key}{asked}\n{costs}    limits: {limit}\n{act}"


def megabytes(count: int) -> str:
    """Write bytes so that small and large numbers can be compared."""
    for unit, size in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if count >= size:
            return f"{count / size:,.1f} {unit}"
    return f"{count} bytes"


def _points(title: str, points: tuple[str, ...]) -> list[str]:
    """Return a heading and its points, each wrapped."""
    wrapped = [
        line
        for point in points
        for line in textwrap.wrap(point, WIDTH, initial_indent="  - ", subsequent_indent="    ")
    ]
    return [title, *wrapped, ""] if points else []
