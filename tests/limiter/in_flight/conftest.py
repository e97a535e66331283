"""Waiters that are only woken, and shared stores of a test's own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from headgate.limiter import wait_queue
from tests.support.homes import home_of

NEVER_BY_ITSELF = 3_600_000_000
"""An interval after which no look happens in a test."""


@pytest.fixture
def rung(monkeypatch) -> None:
    """A waiter does not look by itself: only a release, or a waiter that leaves the line, wakes it."""
    monkeypatch.setattr(wait_queue, "FIRST_LOOK", NEVER_BY_ITSELF)
    monkeypatch.setattr(wait_queue, "LAST_LOOK", NEVER_BY_ITSELF)


@pytest.fixture
def url() -> Iterator[str]:
    """The URL of a shared store that no other test has."""
    with home_of("shared") as home:
        yield home.url
