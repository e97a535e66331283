"""Counts of real workers: what was asked is what was counted, over reloads, replaced and killed workers."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from importlib.util import find_spec
from itertools import product
from pathlib import Path

import pytest

from headgate.observe.publish import read
from tests.support.servers import wait_until
from tests.support.serving import GUNICORN, UVICORN, Served, serving
from tests.support.store_urls import store_url

pytestmark = [
    pytest.mark.engineless,
    pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="looks at processes of Linux"),
]
SERVERS = {
    "gunicorn": (*GUNICORN, "tests.support.watched_apps:flask_app"),
    "uvicorn": (*UVICORN, "tests.support.watched_apps:starlette_app"),
}
POLICY = "rules: [{name: api, key: {header: x-user}, missing: deny, limits: AMOUNT/4 weeks by sliding-window}"
UPGRADE = {
    "connection": "Upgrade", "upgrade": "websocket", "sec-websocket-key": "x3JJHMbDL1EzLkh9GBhXDw==",
    "sec-websocket-version": "13",
}  # fmt: skip
IN_ALL, SOON = ("gunicorn", "memory"), ("uvicorn", "shared")
"""The pairs of each run, with two workers; the soak has four of each pair."""


class Asked:
    """A server, and what it has answered: by rule, as counts tell it."""

    def __init__(self, server: Served, folder: Path) -> None:
        self._server, self._folder = server, folder
        self.api, self.few = Counter[str](), Counter[str]()
        self.answered_by = Counter[int]()
        """The requests that each worker has answered with 200."""

    def ask(self, user: str, *paths: str) -> None:
        """Ask for each path on a connection of its own, eight at a time."""

        def one(path: str) -> tuple[str, int, bytes]:
            answer = self._server.ask(path, user, **(UPGRADE if path == "/talk" else {}))
            refused_by_few = path == "/few" and b'"few"' in answer.body
            return ("few" if refused_by_few else path), answer.status, answer.body

        with ThreadPoolExecutor(8) as threads:
            for path, status, body in threads.map(one, paths):
                assert status in (200, 101, 429), (status, body)
                passed = status != 429
                self.api["allowed" if passed or path == "few" else "refused"] += 1
                if path in ("/few", "few") and (passed or path == "few"):
                    self.few["allowed" if passed else "refused"] += 1
                if status == 200:
                    self.answered_by[int(body)] += 1

    def counted(self) -> dict[str, dict[str, int]]:
        """The results of each rule that are not zero, of all workers, living and dead."""
        rules = read(self._folder / "watch")["rules"]
        told = {rule["rule"]: {name: count for name, count in rule["counts"].items() if count} for rule in rules}
        return {name: counts for name, counts in told.items() if counts}

    def expected(self) -> dict[str, dict[str, int]]:
        """The same, by the answers."""
        return {"api": dict(self.api)} | ({"few": dict(self.few)} if self.few else {})

    def until_counted(self) -> None:
        """Wait until every answer is published."""
        wait_until(lambda: self.counted() == self.expected(), f"{self.counted()} becomes {self.expected()}")


def policy(folder: Path, amount: int, more: str = "") -> str:
    """The policy's file, exchanged at once."""
    (folder / "new").write_text(f"{POLICY.replace('AMOUNT', str(amount))}{more}]\n")
    (folder / "new").replace(folder / "policy.yaml")
    return str(folder / "policy.yaml")


@contextmanager
def workers(count: int, name: str, kind: str, folder: Path) -> Iterator[Asked]:
    """Workers of an app whose counts are published."""
    given = {"HEADGATE_POLICY": policy(folder, 20), "HEADGATE_PUBLISH": str(folder / "watch")}
    with (
        store_url(kind, folder) as url,
        serving(folder, *SERVERS[name], f"--workers={count}", HEADGATE_URL=url, **given) as server,
    ):
        yield Asked(server, folder)


@pytest.mark.parametrize(
    ("count", "name", "kind"),
    [
        *((2, *pair) for pair in (IN_ALL, SOON)),
        *(pytest.param(4, *pair, marks=pytest.mark.soak) for pair in product(SERVERS, ("memory", "shared", "redis"))),
    ],
)
def test_counts_are_what_was_asked(tmp_path, count, name, kind):
    """Requests at two endpoints and websockets, a reload, all workers replaced, one killed, and an end at once.

    Of the worker that is killed, at most its answers since the last file are missing.
    """
    sockets = name == "uvicorn" and any(map(find_spec, ("websockets", "wsproto")))
    with workers(count, name, kind, tmp_path) as asked:
        asked.ask("ann", *["/many"] * 30, *["/few"] * 10, *["/talk"] * (5 if sockets else 0))
        policy(tmp_path, 30, ", {name: never, match: {path: /never}, key: ip, limits: 1/day}")
        wait_until(lambda: _reloaded(asked, tmp_path), "every worker has read the new policy")
        asked.ask("bob", *["/many"] * 40)
        asked.until_counted()
        before = set(asked.answered_by)
        os.kill(_parent(max(before)), signal.SIGHUP)
        wait_until(lambda: not _alive(before), "all workers are replaced")
        asked.ask("cid", *["/many"] * 10, *["/few"] * 10)
        asked.until_counted()
        most_lost = _kill_one(asked)
        asked.ask("dan", *["/many"] * 20)
    counted = asked.counted()  # the others ended in order, without a pause after their last answer
    lost = asked.api["allowed"] - counted["api"]["allowed"]
    assert 0 <= lost <= most_lost
    asked.api["allowed"] -= lost
    assert counted == asked.expected()


def _reloaded(asked: Asked, folder: Path) -> bool:
    asked.ask("eve", *["/many"] * 8)
    return any(rule["rule"] == "never" for rule in read(folder / "watch")["rules"])


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def _alive(pids: set[int]) -> set[int]:
    return {pid for pid in pids if os.path.exists(f"/proc/{pid}")}


def _kill_one(asked: Asked) -> int:
    """Kill a worker right after some answers; return the number of its answers that may be lost."""
    before = Counter(asked.answered_by)
    asked.ask("fay", *["/many"] * 12)
    last = asked.answered_by - before
    pid = max(last)
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not _alive({pid}), "it is dead")
    return last[pid]
