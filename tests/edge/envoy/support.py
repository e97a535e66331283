"""Limits of texts, and requests as Envoy sends them."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from headgate.edge.envoy import EnvoyLimits
from headgate.edge.envoy.messages import RateLimitRequest
from headgate.stores import MemoryStore
from headgate.testing import ManualClock

Entry = tuple[str, str]


class Service:
    """Limits in a directory, on a store in memory with a manual clock."""

    def __init__(self, directory: Path, *texts: str, **options: Any) -> None:
        for number, text in enumerate(texts):
            (directory / f"{number}.yaml").write_text(text, encoding="utf-8")
        self.clock = ManualClock()
        self.limits = EnvoyLimits(directory, MemoryStore(clock=self.clock), **options)

    def ask(self, *descriptors: list[Entry], domain: str = "d", **fields: Any) -> Any:
        """The response to a request; `hits` and `limit` apply to every descriptor."""
        return self.answer(request(*descriptors, domain=domain, **fields))

    def answer(self, asked: Any) -> Any:
        """The response to a message."""
        return asyncio.run(self.limits.answer(asked))[1]

    def codes(self, *descriptors: list[Entry], **fields: Any) -> tuple[int, list[tuple[int, int]]]:
        """The overall code, and code and remaining requests of each descriptor."""
        response = self.ask(*descriptors, **fields)
        return response.overall_code, [(status.code, status.limit_remaining) for status in response.statuses]


def request(
    *descriptors: list[Entry],
    domain: str = "d",
    request_hits: int = 0,
    hits: int | None = None,
    limit: tuple[int, int] | None = None,
) -> Any:
    """A request; negative `hits` are given back."""
    made = RateLimitRequest(domain=domain, hits_addend=request_hits)
    for entries in descriptors:
        descriptor = made.descriptors.add()
        for key, value in entries:
            descriptor.entries.add(key=key, value=value)
        if hits is not None:
            descriptor.hits_addend.value = abs(hits)
            descriptor.is_negative_hits = hits < 0
        if limit is not None:
            descriptor.limit.requests_per_unit, descriptor.limit.unit = limit
    return made
