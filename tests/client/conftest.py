"""Worlds of virtual time, in which budgets call a simulated API."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.virtual_budget import World


@pytest.fixture
def world():
    made: list[World] = []

    def make(*args: Any, **options: Any) -> World:
        made.append(World(*args, **options))
        return made[-1]

    yield make
    for each in made:
        each.end()
