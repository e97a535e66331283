"""Rates from snapshots, and the ways of `headgate top` without a terminal."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from headgate import Limiter
from headgate.cli import main
from headgate.engine import NATIVE
from headgate.observe.publish import Watched
from headgate.stores.shared import SharedStore
from headgate.top import open_source
from headgate.top.history import History
from headgate.top.screen import ago, number, rate, sparks
from headgate.web.wsgi import RateLimitMiddleware
from tests.support.edges import plain_wsgi, wsgi
from tests.support.snapshots import page, recorded, refused, rule, snapshot

pytestmark = pytest.mark.engineless


def of(*snapshots):
    history = History()
    for each in snapshots:
        history.add(each)
    return history


def test_rates_are_differences_over_the_time_between():
    """A rate is what was added, by the seconds between two snapshots; the share is that of the last minute."""
    history = of(
        snapshot(0, [rule("api", 100, 0)]), snapshot(2, [rule("api", 120, 10)]), snapshot(4, [rule("api", 120, 20)])
    )
    (row,) = history.rules()
    assert (row.allowed, row.refused, row.share, row.history) == (0.0, 5.0, 0.5, (15.0, 5.0))


def test_a_new_rule_and_a_restart_have_no_rate_yet():
    """A rule that appears, counts that shrink and a server that was started again are no base for a rate."""
    (_, new) = of(snapshot(0, [rule("a", 9, 0)]), snapshot(1, [rule("a", 9, 0), rule("b", 1000, 0)])).rules()
    assert (new.allowed, new.share, new.history) == (0.0, None, ())
    (again,) = of(snapshot(0, [rule("a", 900, 0)]), snapshot(1, [rule("a", 3, 0)], started=5.0)).rules()
    assert (again.allowed, again.history) == (0.0, ())
    (less,) = of(snapshot(0, [rule("a", 900, 0)]), snapshot(1, [rule("a", 3, 0)])).rules()
    assert (less.allowed, less.history) == (0.0, ())


def test_a_minute_is_kept():
    """The spark line has the last 60 seconds, and no more."""
    history = of(*(snapshot(at, [rule("a", at * at, 0)]) for at in range(100)))
    (row,) = history.rules()
    assert (len(row.history), row.history[-1], row.allowed) == (60, 197.0, 197.0)


def test_keys_have_their_rate():
    """The rate of a key is that of its count; a key that is new in the list has none yet."""
    history = of(
        snapshot(0, [], refused_keys=[refused("a", 10)]),
        snapshot(2, [], refused_keys=[refused("a", 30), refused("b", 9)]),
    )
    assert [(row.key, row.times, row.rate) for row in history.keys("refused_keys")] == [("a", 30, 10.0), ("b", 9, 0.0)]


def test_a_page_without_what_is_needed_is_shown_as_far_as_it_goes():
    """Fields of other types than expected are left out, not an error."""
    odd = {"version": 1, "at": 5, "rules": [{"rule": 7}, None, {"counts": []}], "refused_keys": {"a": 1}}
    history = of(odd)
    assert [row.rule for row in history.rules()] == ["7", ""]
    assert history.keys("refused_keys") == []


def test_words():
    """Numbers fit their columns."""
    assert [number(value) for value in (0, 9_999_999, 12_345_678, 5 * 10**9, None)] == [
        "0",
        "9,999,999",
        "12.3M",
        "5.0G",
        "-",
    ]
    assert [rate(value) for value in (0, 0.04, 12.34, 1234.5)] == ["0", "0.0", "12.3", "1,234"]
    assert [ago(1000, then) for then in (990, 900, 0, None, 2000)] == ["10 s", "100 s", "16 m", "-", "0 s"]
    assert sparks((0, 1, 4, 8), 6) == "   ▁▄█"
    assert sparks([*range(60)], 3) == "▃▆█"


def run(*words):
    return subprocess.run([sys.executable, "-m", "headgate", "top", *words], capture_output=True, text=True, timeout=60)


def test_without_a_terminal_there_is_one_table():
    """Without a terminal `top` prints one table, of two snapshots a second apart, and ends."""
    with page(recorded()) as served:
        done = run(served.url)
    assert (done.returncode, done.stderr, served.asked) == (0, "", 2)
    lines = done.stdout.splitlines()
    assert lines[0] == "headgate top  up 2 h  4 workers  policy policy.yaml, 5 m old"
    assert lines[3].split() == ["login", "5/minute", "by", "sliding-log", "0", "10.0", "100.0%", "0", "█"]
    assert done.stdout.isascii() or "\x1b" not in done.stdout


def test_limiters_without_a_policy_and_a_directory_without_a_worker(capsys, tmp_path):
    """The head names no policy, and no age of one, where there is none; an empty directory has no worker."""
    assert main(["top", str(tmp_path)]) == 0
    assert capsys.readouterr().out.splitlines()[0] == "headgate top  up 0 s  0 workers"
    watched = Watched([Limiter("2/minute")], tmp_path / "watch")
    try:
        assert main(["top", str(tmp_path / "watch")]) == 0
    finally:
        watched.close()
    assert re.fullmatch("headgate top  up [0-9]+ [smh]  1 worker", capsys.readouterr().out.splitlines()[0])


def test_json_is_one_object_a_second():
    """`--json` prints what the source answers, one object in a line, until its reader goes."""
    with page(recorded()) as served:
        program = [sys.executable, "-m", "headgate", "top", "--json", served.url]
        with subprocess.Popen(program, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as printing:
            assert printing.stdout is not None and printing.stderr is not None
            got = [json.loads(printing.stdout.readline()) for _ in range(2)]
            printing.stdout.close()
            assert printing.wait(30) == 0
            assert printing.stderr.read() == ""
    assert got == recorded()[:2]


@pytest.mark.parametrize(
    ("source", "says"),
    [
        (
            "nothing",
            "cannot read 'nothing'; write http://127.0.0.1:6070, a directory given as publish, or shared:///dev/shm/api",
        ),
        ("http://127.0.0.1:9", "http://127.0.0.1:9/top does not answer: "),
        ("shared:///nowhere/at/all", "/nowhere/at/all"),
    ],
)
def test_a_source_that_cannot_be_read_is_one_line(capsys, source, says):
    """A wrong source, a server that is away and a store that is not there are errors in one line."""
    assert main(["top", source]) == 1
    error = capsys.readouterr().err
    assert says in error
    assert len(error.splitlines()) == 1


def test_a_token(capsys, monkeypatch):
    """A page that needs a token gets it from `--token` or the environment; without it, the error says so."""
    with page(recorded(), token="s3cret") as served:
        assert main(["top", served.url]) == 1
        assert "answers 401; give its token with --token or in HEADGATE_TOKEN" in capsys.readouterr().err
        monkeypatch.setenv("HEADGATE_TOKEN", "s3cret")
        assert main(["top", served.url]) == 0
        capsys.readouterr()


def test_a_token_is_told_to_no_other_server(capsys, monkeypatch):
    """A proxy of the environment is not asked for a page on this machine, and a redirect is not followed."""
    with page(recorded()) as other, page(recorded(), token="s3cret") as served:
        monkeypatch.setenv("http_proxy", other.url)
        monkeypatch.delenv("no_proxy", raising=False)
        assert main(["top", served.url, "--token", "s3cret"]) == 0
        served.status, served.location = 302, f"{other.url}/top"
        assert main(["top", served.url, "--token", "s3cret"]) == 1
        assert "/top answers 302" in capsys.readouterr().err
        assert other.asked == 0


def test_another_version_is_refused(capsys):
    """A page of another version is an error, not a table of wrong numbers."""
    with page([{"version": 2, "at": 1.0}]) as served:
        assert main(["top", served.url]) == 1
    assert "has version 2; this headgate reads 1" in capsys.readouterr().err


@pytest.mark.skipif(not NATIVE, reason="shared stores need the native engine")
def test_a_shared_store_has_its_tables_and_what_is_in_flight(tmp_path: Path):
    """Of a shared store, `top` shows keys, fill and evictions of each table, and the permits in flight."""
    store = SharedStore(str(tmp_path / "store"), max_keys=1000)
    Limiter("100/minute", store=store, namespace="api").hit("ada")
    permit = Limiter("20 in flight", store=store, namespace="jobs").permit("bob", 3)
    with permit:
        done = run(f"shared://{tmp_path}/store")
    lines = done.stdout.splitlines()
    assert lines[0].startswith("headgate top  ") and lines[0].endswith("  1 process")
    rows = [line.split() for line in lines[3:5]]
    assert [(row[0], row[-4]) for row in rows] == [("api", "1"), ("jobs", "1")]
    assert lines[6] == "in flight: 3   the oldest first"
    assert lines[7].split()[1:3] == ["s", "3"]


def test_a_directory_of_published_counts(tmp_path: Path):
    """A directory that workers publish to is a source: their counts, summed."""
    app = RateLimitMiddleware(plain_wsgi, {"rules": [{"name": "api", "key": "ip", "limits": "2/hour"}]})
    watched = Watched([app], tmp_path / "watch")
    try:
        for _ in range(3):
            wsgi(app, REMOTE_ADDR="203.0.113.7")
    finally:
        watched.close()  # publishes the last counts
    assert _refusals(tmp_path / "watch") == 1


def _refusals(path: Path) -> int:
    rules = open_source(str(path))()["rules"]
    return sum(rule["counts"]["refused"] for rule in rules)


@pytest.mark.parametrize(
    ("told", "shown"),
    [
        ("5/minute", "5/minute"),
        ("5/minute as login", "5/minute"),
        ("5/minute by sliding-log as login.2", "5/minute by sliding-log"),
        ("5/minute as login.own", "5/minute as own"),
        ("5/minute as other", "5/minute as other"),
    ],
)
def test_a_limit_is_shown_without_the_name_of_its_rule(told, shown):
    """The rule stands beside its limits: of a name only the part that the user gave is repeated."""
    history = History()
    history.add(snapshot(0, [rule("login", 0, 0, told)]))
    assert history.rules()[0].limits == shown
