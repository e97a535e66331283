"""The command, and a shared store with the verbs that look at it."""

from __future__ import annotations

import pytest

from headgate import Limiter
from headgate.cli import main
from headgate.stores.shared import SharedStore


@pytest.fixture
def path(tmp_path):
    """Where a store will be."""
    return str(tmp_path / "api")


@pytest.fixture
def store(path):
    """A store with one table, 20 keys in it."""
    store = SharedStore(path, max_keys=1_000)
    limiter = Limiter("100/minute", store=store)
    assert all(limiter.hit(str(number)) for number in range(20))
    return store


@pytest.fixture
def command(capsys):
    """The command's exit code, what it printed, and what it complained of."""

    def call(*arguments: str) -> tuple[int, str, str]:
        code = main(arguments)
        return code, *capsys.readouterr()

    return call


@pytest.fixture
def run(command):
    """The same, of a verb that looks at a shared store."""
    return lambda *arguments: command("shared", *arguments)
