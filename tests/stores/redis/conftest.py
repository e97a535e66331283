"""Fixtures for threads that ask a server together."""

import pytest

from headgate.stores.redis import senders


@pytest.fixture
def one_sends(monkeypatch):
    """One thread sends at a time, and the others wait for it for as long as they may."""
    monkeypatch.setattr(senders, "FEW", 1)
    monkeypatch.setattr(senders, "WORK", 1_000.0)
    monkeypatch.setattr(senders, "LONGEST_WAIT", 10.0)
