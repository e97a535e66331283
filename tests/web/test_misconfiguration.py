"""Warnings about the surroundings of an app."""

from __future__ import annotations

import pytest

from headgate import MemoryStore
from headgate.web import misconfiguration

pytestmark = pytest.mark.engineless


@pytest.mark.parametrize(
    ("words", "warned"),
    [
        (["python", "gunicorn", "site:app"], 0),
        (["python", "gunicorn", "-w", "1", "site:app"], 0),
        (["python", "gunicorn", "-w", "2", "site:app"], 1),
        (["python", "gunicorn", "--workers=4", "site:app"], 1),
        (["python", "other", "-w", "2"], 0),
    ],
)
def test_several_workers_of_gunicorn_with_limits_in_memory_are_warned_of(words, warned, monkeypatch, caplog):
    """The parent's command line tells the number of workers; one worker admits no more than the limit."""
    monkeypatch.delenv("WEB_CONCURRENCY", raising=False)
    monkeypatch.setattr(misconfiguration.Path, "read_text", lambda *_, **__: "\0".join(words))
    misconfiguration.warn_of_workers([MemoryStore()])
    assert len([each for each in caplog.messages if "each process admits the whole limit" in each]) == warned
