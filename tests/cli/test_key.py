"""`headgate key show`, `reset`, `ban` and `unban`: one key of a policy in the real store, shared or on a server."""

from __future__ import annotations

import logging
import os
import pty
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from headgate import Policy
from headgate.cli import main
from headgate.engine import NATIVE, PEEK
from headgate.policy.hashing import hashed
from headgate.stores import open_store
from headgate.stores.shared import SharedStore

POLICY = """\
rules:
- name: login
  match: {path: /login, method: POST}
  key: ip
  limits: 2/minute by sliding-log
  for: 10m
- name: api
  key: {header: x-api-key}
  missing: skip
  limits: {default: 10/hour, pro: 100/hour; 3 in flight as busy}
"""
LOGIN = "2/minute by sliding-log block 10 minutes as login"
STAMP = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{6} UTC"


@pytest.fixture
def policy(tmp_path):
    file = tmp_path / "policy.yaml"
    file.write_text(POLICY)
    return str(file)


@pytest.fixture(params=["shared", "redis"])
def store(request, tmp_path):
    if request.param == "redis":
        return request.getfixturevalue("server").url
    if not NATIVE:
        pytest.skip("shared stores need the native engine")
    return f"shared://{tmp_path}/store"


def bound(policy: str, url: str, rule: str, plan: str = "default") -> Any:
    """The limits of a rule, bound as the app binds them."""
    loaded = Policy.load(policy)
    plans: Any = next(each for each in loaded.rules if each.name == rule).plans
    return open_store(url, None).bind(loaded.namespace, plans[plan])


def key(capsys, *words: str) -> tuple[int, list[str], str]:
    code = main(["key", *words])
    out, err = capsys.readouterr()
    return code, out.splitlines(), err


def test_show_has_what_is_left_the_block_and_the_stamps(policy, store, capsys):
    """`show` asks the store of the app: what is left, until when the key is blocked, and every stamp of a log."""
    asked = ["show", "--policy", policy, "--store", store, "--ip", "203.0.113.7", "--rule", "login"]
    login = bound(policy, store, "login")
    assert login.run("203.0.113.7", (2,))
    code, lines, _ = key(capsys, *asked)
    assert (code, lines[0]) == (0, "rule login: key 203.0.113.7")
    assert lines[1] == f"  {LOGIN}: 0 of 2 left, not blocked: the next request will be"
    assert re.fullmatch(rf"    counted at {STAMP}: 2 units", lines[2])
    assert not login.run("203.0.113.7", (1,))
    _, lines, _ = key(capsys, *asked)
    assert re.fullmatch(rf"  {LOGIN}: 0 of 2 left, blocked until {STAMP}", lines[1])


def test_show_has_the_permits_in_flight_of_a_hashed_key(policy, store, capsys):
    """A secret is hashed as in a request; permits are shown with their ages, and the plan whose numbers are shown."""
    hidden = hashed("s3cret")
    api = bound(policy, store, "api", "pro")
    assert api.run(hidden, (1, 2))
    asked = ["show", "--policy", policy, "--store", store, "--header", "X-API-Key: s3cret", "--plan", "pro"]
    code, lines, _ = key(capsys, *asked, "--path", "/")
    assert (code, lines[0]) == (0, f"rule api: key {hidden}; limits of the plan pro")
    assert lines[1] == "  100/hour as api.1: 99 of 100 left"
    assert lines[2] == "  3 in flight as api.busy: 1 of 3 left"
    assert re.fullmatch(r"    in flight for \d+\.\d s: 2 units", lines[3])
    assert "s3cret" not in "".join(lines)


def test_without_a_path_every_rule_is_shown(policy, store, capsys):
    """Without a path or a method, each rule is shown; a rule whose key the options do not give says so."""
    assert bound(policy, store, "login").run("203.0.113.7", (1,))
    asked = ["show", "--policy", policy, "--store", store, "--ip", "203.0.113.7"]
    lines = key(capsys, *asked)[1]
    assert (lines[0], lines[-1]) == ("rule login: key 203.0.113.7", "rule api: no key, as header x-api-key is missing")
    assert key(capsys, *asked, "--path", "/login")[1] == ["rule api: no key, as header x-api-key is missing"]


@pytest.mark.skipif(not NATIVE, reason="shared stores need the native engine")
def test_show_makes_no_store_and_no_table(policy, tmp_path, capsys):
    """A store that is not there is an error; a limit that no process has used gets no table."""
    url = f"shared://{tmp_path}/store"
    asked = ["--policy", policy, "--store", url, "--ip", "203.0.113.7", "--rule", "login"]
    assert key(capsys, "show", *asked)[0] == 1
    assert not (tmp_path / "store").exists()
    SharedStore(str(tmp_path / "store"))
    before = sorted(os.listdir(tmp_path / "store"))
    lines = key(capsys, "show", *asked)[1]
    assert lines[1] == f"  {LOGIN}: not used yet, 2 of 2 left"
    assert key(capsys, "reset", *asked, "--yes")[0] == 0
    assert sorted(os.listdir(tmp_path / "store")) == before


def test_reset_forgets_the_key_and_logs_it(policy, store, capsys, caplog, monkeypatch):
    """`reset --yes` forgets the counts of the key, and logs who has reset what, and when."""
    monkeypatch.setenv("SUDO_USER", "ada\x1b[2J")
    login = bound(policy, store, "login")
    assert login.run("203.0.113.7", (2,))
    asked = ["reset", "--policy", policy, "--store", store, "--ip", "203.0.113.7", "--rule", "login"]
    code, _, err = key(capsys, *asked)
    assert (code, err) == (1, "headgate: reset forgets counts and cannot be undone: without a terminal, write --yes\n")
    with caplog.at_level(logging.WARNING, "headgate.key"):
        code, lines, _ = key(capsys, *asked, "--yes")
    assert (code, lines) == (0, ["rule login: key 203.0.113.7: reset"])
    said = caplog.messages[0]
    assert re.match(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC: \S+ \(sudo by ada\\x1b\[2J\) on \S+ reset the key", said)
    assert f"the key 203.0.113.7 of rule login (policy {policy}, store " in said
    assert login.run("203.0.113.7", (2,), PEEK)


def test_ban_and_unban_are_seen_by_the_app_and_logged(policy, store, capsys, caplog):
    """An app in another process refuses the key until `unban`; `show` has the end, and the log the operator."""
    asked = ["--policy", policy, "--store", store, "--ip", "203.0.113.7", "--rule", "login"]
    with Policy.load(policy).bind(store) as app, caplog.at_level(logging.WARNING, "headgate.key"):
        assert app.peek("login", "203.0.113.7")
        assert key(capsys, "unban", *asked)[1] == ["rule login: key 203.0.113.7: unbanned"]
        assert key(capsys, "ban", *asked, "--for", "1h")[1] == ["rule login: key 203.0.113.7: banned for 3600 s"]
        assert 3500 < app.peek("login", "203.0.113.7").retry_after <= 3600
        lines = key(capsys, "show", *asked)[1]
        assert re.fullmatch(rf"  banned until {STAMP}", lines[-1])
        assert key(capsys, "unban", *asked)[0] == 0
        assert app.peek("login", "203.0.113.7")
        assert "banned" not in "".join(key(capsys, "show", *asked)[1])
    assert re.search(r" on \S+ banned for 3600 s the key 203\.0\.113\.7 of rule login \(policy ", caplog.messages[1])
    assert " unbanned the key 203.0.113.7 of rule login " in caplog.messages[2]


SHARED_KEYS = """\
- {name: all, key: everyone, limits: 100/second}
- {name: writes, key: [method, {constant: site}], limits: 100/second}
- {name: users, key: user, limits: 9/hour}
"""


@pytest.mark.parametrize(
    ("verb", "done"),
    [(["ban", "--for", "1h"], "banned for 3600 s"), (["unban"], "unbanned"), (["reset", "--yes"], "reset")],
)
def test_only_the_client_that_was_named_is_changed(policy, store, capsys, verb, done):
    """Neither an address that was not given is changed, nor, without its rule's name, a key that all clients share."""
    Path(policy).write_text(POLICY + SHARED_KEYS)
    bound(policy, store, "login")
    asked = [*verb, "--policy", policy, "--store", store]
    assert key(capsys, *asked, "--user", "ada")[1] == [f"rule users: key ada: {done}"]
    code, lines, err = key(capsys, *asked)
    assert (code, lines) == (1, [])
    assert "rule login: ip is missing" in err
    assert "rule all: it counts all clients together; if that is meant, write --rule all" in err
    lines = key(capsys, *asked, "--ip", "203.0.113.7")[1]
    assert lines == [f"rule login: key 203.0.113.7: {done}", rf"rule users: key \m203.0.113.7: {done}"]
    assert key(capsys, *asked, "--rule", "all")[1] == [f"rule all: key *: {done}"]


def test_a_ban_needs_a_time(policy, server, capsys):
    """A time that is none, or longer than a ban can last, is an error in one line."""
    asked = ["ban", "--policy", policy, "--store", server.url, "--ip", "203.0.113.7", "--rule", "login", "--for"]
    for time, says in (("soon", "unknown unit"), ("367 days", "at most 366 days"), ("0", "must be"), ("-5", "must be")):
        code, lines, err = key(capsys, *asked[:-1], f"--for={time}")
        assert (code, lines, len(err.splitlines())) == (1, [], 1), time
        assert says in err or "unknown unit" in err, time


@pytest.mark.parametrize(("typed", "left"), [("y", 2), ("n", 0), ("", 0)])
@pytest.mark.skipif(not NATIVE, reason="shared stores need the native engine")
def test_reset_asks_back_on_a_terminal(policy, tmp_path, typed, left):
    """On a terminal, only a yes resets the key."""
    url = f"shared://{tmp_path}/store"
    login = bound(policy, url, "login")
    assert login.run("203.0.113.7", (2,))
    words = ["key", "reset", "--policy", policy, "--store", url, "--ip", "203.0.113.7", "--rule", "login"]
    pid, terminal = pty.fork()
    if pid == 0:
        os.execv(sys.executable, [sys.executable, "-m", "headgate", *words])
    shown = b""
    while b"[y/N]" not in shown:
        shown += os.read(terminal, 4096)
    os.write(terminal, typed.encode() + b"\n")
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    os.close(terminal)
    assert b"rule login: key 203.0.113.7" in shown
    assert code == (0 if left else 1)
    assert login.run("203.0.113.7", (0,), PEEK).remaining == left


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--rule", "logn"], "no rule 'logn'; did you mean 'login'?"),
        (["--rule", "login"], "write --store URL, the store of the app, for login"),
        (["--rule", "login", "--store", "memory://"], "a store in memory can be seen in its own process only"),
        (["--rule", "login", "--store", "redis://127.0.0.1:9?deadline=0.2"], "the store cannot answer now"),
    ],
)
def test_mistakes_are_one_line(policy, capsys, words, says):
    """An unknown rule, no store, a store in memory and a store that is away are errors in one line."""
    code, lines, err = key(capsys, "show", "--policy", policy, "--ip", "203.0.113.7", *words)
    assert (code, lines) == (1, [])
    assert says in err
    assert len(err.splitlines()) == 1


def test_a_hostile_key_cannot_steer_the_terminal(tmp_path, capsys, server):
    """Escapes, bidi marks and 4 KB in a value reach the terminal escaped and cut, or hashed."""
    file = Path(tmp_path) / "policy.yaml"
    file.write_text("rules: [{name: api, key: user, limits: 5/minute}]")
    for user in ("a\x1b[2Jb", "a\u202eb", "a\rb\nc"):
        lines = key(capsys, "show", "--policy", str(file), "--store", server.url, "--user", user)[1]
        assert len(lines) == 2
        assert all(line.isprintable() for line in lines)
    lines = key(capsys, "show", "--policy", str(file), "--store", server.url, "--user", "x" * 4096)[1]
    assert len(lines[0]) < 240
