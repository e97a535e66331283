"""Load shedding on real servers under load: the kill switch, reloads, and clients that go away."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.support.servers import wait_until
from tests.support.serving import UVICORN, Served, serving

pytestmark = pytest.mark.engineless

APPS = {
    "asgi": (*UVICORN, "--lifespan=off", "tests.support.shed_apps:asgi"),
    "wsgi": ("gunicorn", "--threads=16", "--bind=unix:{socket}", "--log-level=error", "tests.support.shed_apps:wsgi"),
}
CLIENTS = 12


def written(file: Path, mode: str = "enforce", limit: int = 2, timeout: str = "0") -> Path:
    """Write a policy: two requests at once, and no waiting."""
    exempt = "{any: [{path: /stats}, {path: /mode/*}]}"
    text = f"rules: []\nshed: {{limit: {limit}, timeout: {timeout}, mode: '{mode}', exempt: {exempt}}}\n"
    new = file.with_suffix(".new")
    new.write_text(text)
    new.replace(file)
    return file


class Load:
    """Clients that ask for slow responses until it is over."""

    def __init__(self, server: Served) -> None:
        self.server = server
        self.over = threading.Event()
        self.statuses: Counter[int] = Counter()

    def run(self) -> None:
        while not self.over.wait(0.002):  # a pause, since the file is looked at only once a second
            self.statuses[self.server.ask("/slow").status] += 1

    def stats(self, path: str = "/stats") -> dict[str, Any]:
        """Return the numbers of the shedder, perhaps after a change of its mode."""
        answer = self.server.ask(path)
        assert answer.status == 200
        told: dict[str, Any] = json.loads(answer.body)
        return told

    def more(self, status: int) -> None:
        """Wait until twenty more requests have had this status."""
        before = self.statuses[status]
        wait_until(lambda: self.statuses[status] >= before + 20, f"more answers are {status}", 60)

    def none(self, status: int) -> None:
        """Wait until no request that is under way can have this status any more, and see that none has."""
        self.more(200)
        before = self.statuses[status]
        self.more(200)
        assert self.statuses[status] == before


@contextlib.contextmanager
def loaded(name: str, folder: Path, **policy: Any) -> Iterator[Load]:
    """Run an app under load; at the end every request has had its answer, and no permit is held."""
    file = written(folder / "policy.yaml", **policy)
    with serving(folder, *APPS[name], HEADGATE_POLICY=str(file)) as server, ThreadPoolExecutor(CLIENTS) as threads:
        load = Load(server)
        running = [threads.submit(load.run) for _ in range(CLIENTS)]
        try:
            yield load
        finally:
            load.over.set()
        for each in running:
            each.result()  # a request that is lost is an error of its client
        assert set(load.statuses) <= {200, 503}
        wait_until(lambda: load.stats()["in_flight"] == 0, "no permit is held")
        assert load.stats()["waiting"] == 0
    assert "Traceback" not in server.log.read_text()


@pytest.mark.parametrize("name", APPS)
def test_the_kill_switch_under_load(tmp_path, name):
    """Off: no request is refused any more. Observe: none, and they are counted. Enforce: at once again."""
    with loaded(name, tmp_path) as load:
        load.more(503)
        load.stats("/mode/off")
        load.none(503)
        counted = load.stats("/mode/observe")["refused"]
        load.none(503)
        assert load.stats()["refused"] > counted
        load.stats("/mode/enforce")
        load.more(503)
        assert load.stats()["in_flight"] <= 2 + CLIENTS


@pytest.mark.parametrize("name", APPS)
def test_a_reload_under_load_loses_no_request(tmp_path, name):
    """The mode and the limit of the file are followed, by the same shedder: requests under way end as they began."""
    with loaded(name, tmp_path) as load:
        load.more(503)
        written(tmp_path / "policy.yaml", mode="off")
        wait_until(lambda: load.stats()["mode"] == "off", "the file was read", 60)
        load.none(503)
        written(tmp_path / "policy.yaml", limit=3)
        wait_until(lambda: load.stats()["limit"] == 3, "the file was read", 60)
        load.more(503)
        load.more(200)


@pytest.mark.parametrize("name", APPS)
def test_clients_that_go_away_leave_no_permit(tmp_path, name):
    """A hundred clients ask and leave, while others are served and wait; all permits and places come back."""
    with loaded(name, tmp_path, limit=4, timeout="10s") as load:
        for _ in range(100):
            with socket.socket(socket.AF_UNIX) as client:
                client.connect(load.server.path)
                client.sendall(b"GET /slow HTTP/1.1\r\nHost: localhost\r\n\r\n")
        load.more(200)
