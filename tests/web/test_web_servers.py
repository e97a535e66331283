"""Every edge in real servers with several workers, asked by a real client."""

from __future__ import annotations

import os
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from headgate.engine import NATIVE
from tests.support.servers import wait_until
from tests.support.serving import GUNICORN, UVICORN, Served, serving
from tests.support.store_urls import store_url

pytestmark = pytest.mark.engineless

APPS = {
    "wsgi": (*GUNICORN, "tests.support.web_apps:wsgi"),
    "asgi": (*UVICORN, "tests.support.web_apps:asgi"),
    "flask": (*GUNICORN, "tests.support.web_apps:flask_app"),
    "fastapi": (*UVICORN, "tests.support.web_apps:fastapi_app"),
    "aiohttp": (*GUNICORN, "--worker-class=aiohttp.GunicornWebWorker", "tests.support.web_apps:aiohttp_app"),
    "django": (*GUNICORN, "tests.support.django_site:wsgi"),
    "django async": (*UVICORN, "tests.support.django_site:asgi"),
}
BARE = ("wsgi", "asgi")
LIMITED = "rules: [{name: api, key: {header: X-User}, missing: deny, limits: 25/4 weeks by sliding-window}]\n"
WARNING = "the limits are in the memory of this process"


def workers(name: str, folder: Path, url: str, *, policy: str = LIMITED, count: int = 2) -> Any:
    """Workers of an app; the policy of those without a framework is in a file."""
    file = written(folder / "policy.yaml", policy)
    return serving(folder, *APPS[name], f"--workers={count}", HEADGATE_URL=url, HEADGATE_POLICY=str(file))


def written(file: Path, text: str) -> Path:
    """Exchange a file as deployments do, at once."""
    new = file.with_suffix(".new")
    new.write_text(text)
    os.replace(new, file)
    return file


@pytest.mark.parametrize(
    ("name", "kind"), [*product(BARE, ("shared", "redis")), *((name, "shared") for name in APPS if name not in BARE)]
)
def test_workers_let_exactly_the_limit_pass(tmp_path, name, kind):
    """Of 100 requests for as many URLs of one endpoint, eight at a time, 25 get 200 and 75 get 429."""
    with store_url(kind, tmp_path) as url, workers(name, tmp_path, url) as server:
        with ThreadPoolExecutor(8) as threads:
            answers = list(threads.map(lambda at: server.ask(f"/items/{at}/"), range(100)))
        assert Counter(answer.status for answer in answers) == {200: 25, 429: 75}
        assert {answer.fields["ratelimit-policy"].partition(";")[2] for answer in answers} == {"q=25;w=2419200"}
        left = sorted(answer.fields["ratelimit"].split(";")[1] for answer in answers if answer.status == 200)
        assert left == sorted(f"r={at}" for at in range(25))
        assert all(int(answer.fields["retry-after"]) > 0 for answer in answers if answer.status == 429)
        assert server.ask("/items/1/", user="bob").status == 200
    assert WARNING not in server.log.read_text()


UPGRADE = {
    "connection": "Upgrade", "upgrade": "websocket", "sec-websocket-key": "x3JJHMbDL1EzLkh9GBhXDw==",
    "sec-websocket-version": "13",
}  # fmt: skip


@pytest.mark.skipif(not NATIVE, reason="shared stores need the native engine")
@pytest.mark.skipif(not any(map(find_spec, ("websockets", "wsproto"))), reason="uvicorn cannot open websockets here")
def test_workers_open_exactly_the_websockets_of_the_limit(tmp_path):
    """Of two websockets of one client one is opened, and the other gets a whole refusal in place of the handshake."""
    with workers("fastapi", tmp_path, f"shared://{tmp_path}/store") as server:
        opened, refused = (server.ask("/ws", **UPGRADE) for _ in range(2))
    assert (opened.status, refused.status, b"quota-exceeded" in refused.body) == (101, 429, True)
    assert int(refused.fields["retry-after"]) > 0


@pytest.mark.parametrize("count", [2, pytest.param(4, marks=pytest.mark.soak)])
@pytest.mark.parametrize("name", BARE)
def test_memory_in_workers_is_a_limit_of_each_and_each_says_so_once(tmp_path, name, count):
    """Each worker that was asked lets its own 25 pass; the log has the fix."""
    with workers(name, tmp_path, "memory://", count=count) as server:
        answers = [server.ask() for _ in range(50 * count)]
        passed = Counter(answer.body for answer in answers if answer.status == 200)
        assert set(passed.values()) <= set(range(1, 26))
        assert 25 <= sum(passed.values()) <= 25 * count
        wait_until(lambda: server.log.read_text().count(WARNING) >= count, "every worker is up", 120)
    said = server.log.read_text()
    assert said.count(WARNING) == count
    assert "Write store='shared:///dev/shm/api'" in said


def marked(version: str, style: str) -> str:
    """A policy whose every answer says of which version it is: in the names of two rules and in a style of headers.

    Their paths differ too: a rule with another name, for the same requests, would be the same one to a reload.
    """
    rule = "{{name: {0}-{1}, match: {{path: {3}}}, key: {{header: X-User}}, limits: {2}/4 weeks}}"
    path = {"one": "/**", "two": "[/, /**]"}[version]
    rules = ", ".join(rule.format(version, each, amount, path) for each, amount in (("a", 10**9), ("b", 10**8)))
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
    """Four clients that ask until it is over, and the versions that each worker answered in each stage of the test.

    An answer counts for the stage in which its request was sent: a client may hold an old answer for a while before it
    notes it.
    """

    def __init__(self, server: Served) -> None:
        self.server = server
        self.over = threading.Event()
        self.stage = 0
        self.statuses: Counter[int] = Counter()
        self.told: dict[bytes, set[tuple[int, str]]] = {}

    def all_tell(self, version: str) -> None:
        """Begin a stage, and wait until every worker has answered a request of it by this version."""
        self.stage += 1
        wanted = (self.stage, version)
        wait_until(lambda: all(wanted in told for told in list(self.told.values())), f"all tell {version}")

    def run(self) -> None:
        while not self.over.wait(0.005):  # a pause, since the file is looked at only once a second
            stage = self.stage
            answer = self.server.ask()
            self.statuses[answer.status] += 1
            self.told.setdefault(answer.body, set()).add((stage, version_of(answer.fields)))


@pytest.mark.parametrize("name", ["asgi", pytest.param("wsgi", marks=pytest.mark.soak)])
def test_a_policy_exchanged_under_load_loses_no_request_and_mixes_nothing(tmp_path, name):
    """Exchanged again and again, then broken: every answer is 200 and of one policy, at last of the last good one."""
    policy, first = tmp_path / "policy.yaml", marked("one", STYLES["one"])
    wrong = f"the policy is unchanged; {policy} has errors:\npolicy.yaml:2: not YAML: "
    with workers(name, tmp_path, "memory://", policy=first) as server, ThreadPoolExecutor(4) as threads:
        # A worker that started later would find the broken file, and end.
        wait_until(lambda: server.log.read_text().count(WARNING) >= 2, "every worker is up", 120)
        load = Load(server)
        running = [threads.submit(load.run) for _ in range(4)]
        try:
            wait_until(lambda: len(load.told) > 1, "both workers answer")
            for version in ("two", "one", "two"):
                written(policy, marked(version, STYLES[version]))
                load.all_tell(version)
            written(policy, "rules: [\n")
            last_good = load.stage = load.stage + 1
            wait_until(lambda: server.log.read_text().count(wrong) >= len(load.told), "all have told of the mistake")
            load.all_tell("two")
        finally:
            load.over.set()
        for each in running:
            each.result()
        assert set(load.statuses) == {200}
        told = set().union(*load.told.values())
        assert {version for _, version in told} == {"one", "two"}
        assert {version for stage, version in told if stage >= last_good} == {"two"}
    assert "Traceback" not in server.log.read_text()
