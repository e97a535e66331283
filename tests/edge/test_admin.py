"""`headgate serve --admin`: the counts of all workers on one port, for operators only."""

from __future__ import annotations

import json
import os
import re
import signal
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from headgate.cli import main
from tests.support.edge import Answer, Service, refuses, serving, unix_ask
from tests.support.servers import wait_until

pytestmark = [
    pytest.mark.engineless,
    pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="looks at processes of Linux"),
]

POLICY = "rules: [{name: api, match: {path: /api/**}, key: ip, limits: 3/hour}]\n"
TOKEN = "t" * 16


@pytest.fixture
def policy(tmp_path):
    """A policy with one rule."""
    file = tmp_path / "policy.yaml"
    file.write_text(POLICY)
    return file


@contextmanager
def watched(*options: str) -> Iterator[tuple[Service, Service]]:
    """A service, and its admin port as if it were one."""
    with serving("--admin", "127.0.0.1:0", *options) as service:
        admin = object.__new__(Service)
        admin.port = int(service.line(r"admin: http://127.0.0.1:(\d+)")[1])
        yield service, admin


def seen(admin: Service, page: str = "/top") -> dict[str, Any]:
    status, headers, body = admin.ask("GET", page)
    assert (status, headers["cache-control"]) == (200, "no-store")
    found: dict[str, Any] = json.loads(body)
    return found


def until(admin: Service, **counts: int) -> None:
    """Wait until the workers have published these counts of the rule."""

    def told() -> bool:
        rules = {rule["rule"]: rule["counts"] for rule in seen(admin)["rules"]}
        return all(rules.get("api", {}).get(name) == count for name, count in counts.items())

    wait_until(told, f"the counts are {counts}")


def test_the_counts_of_all_workers_are_what_was_asked(policy):
    """Two workers, one of them killed and replaced, a bad policy: every page has the exact sum, and lists the keys."""
    with watched("--policy", str(policy)) as (service, admin):
        ask = b'{"limit": "2/hour", "key": "k"}'
        assert [service.ask("POST", "/v1/check", body=ask)[0] for _ in range(5)] == [200] * 5
        assert [service.check("/api/a")[0] for _ in range(40)] == [204] * 3 + [429] * 37
        until(admin, allowed=3, refused=37)
        os.kill(service.workers()[0], signal.SIGKILL)
        service.line("worker . died")
        wait_until(lambda: service.check("/api/b", "203.0.113.10")[0] == 429, "a second client is refused")
        until(admin, allowed=6, refused=38)
        policy.write_text("rules: [{name: api}]\n")
        wait_until(lambda: seen(admin)["policy"]["reload_failures"] == 1, "the bad policy is told of")
        wait_until(lambda: seen(admin)["workers"] == 2, "another worker has taken its place")
        found = seen(admin)
        assert (found["policy"]["file"], found["stores"][0]["kind"]) == ("policy.yaml", "shared")
        refused = {one["key"]: one["count"] for one in found["refused_keys"]}
        assert refused == {"203.0.113.9": 37, "203.0.113.10": 1}
        assert found["rules"][0]["counts"]["refused"] == 38
        plain = next(one["counts"] for one in found["limiters"] if one["namespace"] == "check")
        assert plain == {"allowed": 2, "refused": 3, "never": 0, "degraded": 0}
        assert seen(admin, "/counts").keys() == found.keys() - {"refused_keys", "busiest_keys", "floors"}
        families = text_string_to_metric_families(admin.ask("GET", "/metrics")[2].decode())
        samples = {(one.name, *sorted(one.labels.values())): one.value for each in families for one in each.samples}
        assert samples["headgate_decisions_total", "api", "policy", "refused"] == 38
        assert samples["headgate_policy_reload_failures_total", "policy"] == 1
        assert [admin.ask("GET", "/check")[0], service.ask("GET", "/top")[0]] == [404, 404]
        assert service.end() == 0


def test_top_shows_a_service_whose_workers_are_renewed(policy, capsys):
    """SIGHUP replaces every worker right after its last answers: no count is lost, and `headgate top` shows the sum."""
    with watched("--policy", str(policy)) as (service, admin):
        assert [service.check("/api/a")[0] for _ in range(10)] == [204] * 3 + [429] * 7
        first = service.workers()
        service.process.send_signal(signal.SIGHUP)
        wait_until(lambda: len(service.workers()) == 2 and not set(service.workers()) & set(first), "new workers")
        assert [service.check("/api/b", "203.0.113.10")[0] for _ in range(5)] == [204] * 3 + [429] * 2
        until(admin, allowed=6, refused=9)
        wait_until(lambda: seen(admin)["workers"] == 2, "the renewed workers have published")
        assert main(["top", f"http://127.0.0.1:{admin.port}"]) == 0
        lines = capsys.readouterr().out.splitlines()
        assert re.fullmatch(r"headgate top  up \d+ s  2 workers  policy policy.yaml, \d+ s old", lines[0]), lines[0]
        assert [line.split()[:2] for line in lines if line.startswith("api ")] == [["api", "3/hour"]]
        refused = [line.split() for line in lines if line.startswith("203.0.113.")]
        assert [(row[0], row[1], row[3]) for row in refused] == [
            ("203.0.113.9", "api", "7"), ("203.0.113.10", "api", "2"),
        ]  # fmt: skip
        assert service.end() == 0


def test_with_a_token_only_its_bearers_see_the_counts(policy, tmp_path):
    """The tokens of the service; a new token file counts at once, and one that cannot be read admits nobody.

    With `--hash-addresses`, no page and no line of the log has the address.
    """
    file = tmp_path / "tokens"
    file.write_text(f"{TOKEN}\n{'u' * 16}\n")

    def ask(token: str | None) -> Answer:
        return admin.ask("GET", "/top", {} if token is None else {"Authorization": f"Bearer {token}"})

    def statuses(*tokens: str | None) -> list[int]:
        return [ask(token)[0] for token in tokens]

    options = ("--policy", str(policy), "--token-file", str(file), "--hash-addresses", "--workers", "1")
    with watched(*options) as (service, admin):
        own = {"X-Headgate-Token": TOKEN}
        assert [service.check("/api/a", **own)[0] for _ in range(4)] == [204] * 3 + [429]
        assert statuses(None, "wrong", TOKEN, "u" * 16) == [403, 403, 200, 200]
        wait_until(lambda: json.loads(ask(TOKEN)[2])["refused_keys"], "the refusal is published")
        found = ask(TOKEN)[2].decode()
        assert json.loads(found)["refused_keys"][0]["key"].startswith("\\h")
        assert "203.0.113.9" not in found + service.line("rule api refused")[0]
        file.write_text("v" * 16)
        assert statuses(TOKEN, "v" * 16) == [403, 200]
        file.unlink()
        assert statuses(None, "", "v" * 16) == [403] * 3


def test_a_unix_socket_for_operators_is_theirs_alone(policy, tmp_path):
    """It is for the owner and the group, answers without a token, and is gone at the end."""
    path = str(tmp_path / "admin.sock")
    with serving("--policy", str(policy), "--admin", f"unix:{path}", "--workers", "1") as service:
        assert service.line(r"admin: (\S+),")[1] == f"unix:{path}"
        assert stat.S_IMODE(os.stat(path).st_mode) == 0o660
        answer = unix_ask(path, b"GET /counts HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 200")
        assert service.end() == 0
    assert not os.path.exists(path)


def test_an_admin_port_that_others_can_reach_needs_a_token_or_a_word(policy):
    """The counts name clients, so the rules are those of `--listen`."""
    assert refuses("--policy", str(policy), "--admin", "0.0.0.0:0") == (
        "headgate: --admin 0.0.0.0:0 can be reached from other machines, and anyone there could see which clients are "
        "refused: give --token-file FILE, or --open if only your machines can reach it\n"
    )
