"""No message shows a password: of a URL, of a policy, of the command line."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from headgate import Limiter
from headgate.cli import main
from headgate.cli.shared import read_path
from headgate.errors import HeadgateError
from headgate.policy import Policy
from headgate.policy.source import read_source
from headgate.stores import open_store
from headgate.stores.redis import RedisStore
from headgate.stores.redis.url import read_url
from headgate.web.wsgi import RateLimitMiddleware as Wsgi
from headgate.wording import without_password
from tests.support.inside import runtime_of

pytestmark = pytest.mark.engineless

CANARY = "canary"

WRONG_URLS = [
    f"redis://:{CANARY}@cache:port",
    f"redis://user:{CANARY}@cache:99999",
    f"redis://:{CANARY}@a,b",
    f"redis://:{CANARY}@cache/zero",
    f"redis://:{CANARY}/x@cache",
    f"redis://:{CANARY}#x@cache",
    f"redis://:{CANARY}@x@cache:port",
    f"redis://:x y {CANARY}@cache:port",
    f"redis://:[{CANARY}]@cache",
    f"redis://:{CANARY}\u2100@cache",
    f"redis://[::1:{CANARY}@cache",
    f"redis://:{CANARY}@cache?deadline=soon",
    f"redis://:{CANARY}@cache?colour=red",
    f"redis://cache?password={CANARY}&deadline=soon",
    f"redis://cache?deadline=1;password={CANARY}",
    f"redis://cache/x?password={CANARY}",
    f"redis+cluster://:{CANARY}@cache/1",
    f"redis+sentinel://:{CANARY}@cache",
    f"redis+sentinel://cache/m?sentinel_password={CANARY}&db=x",
    f"redis+other://:{CANARY}@cache",
    f"rediss//:{CANARY}@cache",
    f"unix://:{CANARY}@cache",
    f"mysql://root:{CANARY}@cache",
    f"memory://:{CANARY}@cache",
    f"memory://?password={CANARY}",
    f"shared://:{CANARY}@cache/x",
    f"user:{CANARY}@cache:6379",
    f":{CANARY}@cache:6379",
    f"{CANARY}@cache:6379",
    f"{CANARY}:6379@cache",
    f"://{CANARY}@cache",
    f"redis://:{CANARY}{'x' * 200}@cache:port",
]


def said(call: Callable[[], Any]) -> str:
    """What an error of ours says, and that it is one."""
    with pytest.raises(HeadgateError) as raised:
        call()
    assert raised.value.__cause__ is None
    return f"{raised.value} {raised.value!r} {raised.value.args}"


@pytest.mark.parametrize("url", WRONG_URLS)
def test_no_message_about_a_url_has_its_password(url):
    """Whatever is wrong with it: the place, the scheme, the options, or a password that nobody quoted."""
    assert CANARY not in said(lambda: open_store(url, None))
    assert CANARY not in said(lambda: Limiter("1/s", store=url))
    if url.startswith(("redis", "unix")):
        assert CANARY not in said(lambda: RedisStore(url))


@pytest.mark.parametrize(
    "given", [WRONG_URLS[0].encode(), [WRONG_URLS[0]], {"url": WRONG_URLS[0]}, Path(WRONG_URLS[0])]
)
def test_what_is_no_url_is_not_shown_either(given):
    """Of what stands in the place of a store, the type is told."""
    assert CANARY not in said(lambda: open_store(given, None))


def policies(url: str) -> list[dict[str, Any]]:
    """A URL at the right place, and at every wrong one."""
    rule = {"key": "ip", "limits": "1/hour"}
    return [
        {"stores": {"far": url}, "rules": [{**rule, "store": "fra"}]},
        {"stores": {url: "far"}, "rules": [{**rule, "store": "fra"}]},
        {"stores": {"far": [url]}, "rules": [rule]},
        {"stores": {"far": {"url": url}}, "rules": [rule]},
        {"stores": [url], "rules": [rule]},
        {"stores": url, "rules": [rule]},
        {"store": url, "rules": [{**rule, "limits": "often"}]},
        {url: "far", "rules": [rule]},
        {"rules": [{**rule, "store": url}]},
        {"rules": [{**rule, "store": {"far": url}}]},
        {"rules": [{**rule, "stores": {"far": url}, "limits": "often"}]},
        {"rules": {"stores": url}},
        {"namespace": {"far": url}, "rules": [rule]},
        {"headers": url, "rules": [rule]},
    ]


@pytest.mark.parametrize(
    "url", [f"redis://:{CANARY}@cache:6379", f"redis://u:{'x' * 50}{CANARY}@cache", f":{CANARY}@c:1"]
)
def test_no_mistake_in_a_policy_shows_a_password(tmp_path, caplog, capsys, url):
    """In Python, in a file, in the log of a reload, and in what the command prints."""
    file = tmp_path / "policy.json"
    file.write_text(json.dumps({"rules": [{"key": "ip", "limits": "1/hour"}]}))
    app = Wsgi(lambda environ, start: [], file)
    for policy in policies(url):
        assert CANARY not in said(partial(Policy, policy))
        file.write_text(json.dumps(policy))
        assert main(["policy", "check", str(file)]) == 1
        assert main(["policy", "explain", str(file)]) == 1
        assert app.reload() is False
    printed = capsys.readouterr()
    assert CANARY not in printed.out + printed.err + caplog.text
    assert "cache" in printed.err or ":1" in printed.err


def test_a_policy_whose_store_cannot_be_opened_is_told_of_without_its_password(tmp_path, caplog):
    """It is right as a policy, and fails when it is used."""
    file = tmp_path / "policy.json"
    rule = {"key": "ip", "limits": "1/hour", "store": "far"}
    file.write_text(json.dumps({"rules": [{"key": "ip", "limits": "1/hour"}]}))
    app = Wsgi(lambda environ, start: [], file)
    for url in WRONG_URLS:
        file.write_text(json.dumps({"stores": {"far": url}, "rules": [rule]}))
        assert app.reload() is False
        assert CANARY not in said(lambda: Wsgi(lambda environ, start: [], file))
    assert CANARY not in caplog.text


def test_nothing_that_has_a_url_shows_it():
    """In a debugger or in a log."""
    url = f"redis://:{CANARY}@cache:6379"
    policy = {"stores": {"far": url}, "rules": [{"key": "ip", "limits": "1/hour", "store": "far"}]}
    app = Wsgi(lambda environ, start: [], policy, store=url)
    parts = (
        app,
        runtime_of(app),
        app.policy,
        runtime_of(app).store,
        app.policy.rules,
        read_source(policy),
        read_url(url),
    )
    for part in (*parts, Limiter("1/s", store=url)):
        assert CANARY not in f"{part!r} {part}"


def test_the_command_line_shows_no_password_of_a_shared_store():
    """It is not there to be one, but a URL can be wrong in any way."""
    for url in (f"shared://:{CANARY}@cache/x", f"shared://:[{CANARY}]@cache"):
        with pytest.raises(argparse.ArgumentTypeError) as raised:
            read_path(url)
        assert CANARY not in str(raised.value)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("redis://:pw@cache:6379/0", "redis://***@cache:6379/0"),
        ("cannot read 'redis://u:pw@cache', or 'x'", "cannot read 'redis://***@cache', or 'x'"),
        ("u:pw@cache", "***@cache"),
        ("ann@example.com", "ann@example.com"),
        ("{'x': 'ann@example.com'}", "{'x': 'ann@example.com'}"),
        ("redis://cache?db=1&password=pw&nodes=2", "redis://cache?db=1&password=***&nodes=2"),
        ("redis://cache:6379", "redis://cache:6379"),
        ("", ""),
    ],
)
def test_what_is_hidden_and_what_is_not(text, told):
    """A host, a database and an address of mail are no secrets."""
    assert without_password(text) == told
