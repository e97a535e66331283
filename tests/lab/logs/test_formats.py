"""Every format of servers, by lines that real servers wrote; `lines/alb.log` is from the manual of AWS."""

from __future__ import annotations

import re

import pytest

from headgate.errors import InvalidCall
from headgate.lab.logs import Log
from tests.lab.logs.support import LINES, common, drained, log_of, read

pytestmark = pytest.mark.engineless

USUAL = [
    ("GET", "/plain"),
    ("HEAD", "/a?x=1&y=%22"),
    ("GET", '/quo"te'),
    ("GET", "/absolute"),
    ("GET", "/ü"),
    ("GET", "/user"),
    ("GET", "/old"),
    ("", ""),
    ("GET", "/forged"),
]
ENCODED = [("GET", "/quo%22te") if path == '/quo"te' else ("GET", "/%C3%BC") if path == "/ü" else (method, path)
           for method, path in USUAL if path]  # fmt: skip
WITHOUT_UMLAUT = [("", "") if path == "/ü" else (method, path) for method, path in USUAL]
"""Envoy refuses such a path, and does not log it."""
LOCAL = "127.0.0.1"
SERVERS = [
    ("nginx.log", "combined", USUAL, LOCAL, 200, True, ()),
    ("caddy.jsonl", "Caddy's JSON", [request for request in USUAL if request[0]], LOCAL, 200, False, ()),
    ("traefik.log", "Traefik's common", ENCODED, LOCAL, 502, True, ()),
    ("traefik.jsonl", "Traefik's JSON", ENCODED, LOCAL, 502, False, ()),
    ("envoy.log", "Envoy's text", WITHOUT_UMLAUT, "198.51.100.7", 200, False, ("user",)),
    ("envoy.jsonl", "Envoy's JSON", WITHOUT_UMLAUT, LOCAL, 200, False, ("user",)),
]


@pytest.mark.parametrize(("file", "name", "requests", "client", "status", "spread", "missing"), SERVERS)
def test_lines_of_real_servers(file, name, requests, client, status, spread, missing):
    """A reader finds client, method, target and status in all lines that a server wrote about nine odd requests."""
    log = Log([LINES / file])
    nobody = "-" if name == "Envoy's text" else client  # it has no client for a request that it could not read
    assert [request[1:] for request in log] == [
        (client if method else nobody, 1, method, path, status if method else 400) for method, path in requests
    ]
    facts = log.facts
    assert (facts.format, facts.spread, facts.missing, facts.unreadable) == (name, spread, missing, 0)
    assert facts.requests == facts.lines == len(requests)


def test_lines_of_apache():
    """Apache escapes quotes by a backslash; users may have spaces; clients, statuses and requests may be absent."""
    assert [tuple(request) for request in Log([LINES / "apache.log"])] == [
        (1_455_944_445_000_000, "192.0.2.10", 1, "GET", "/robots.txt", 200),
        (1_455_944_446_000_000, "2001:db8::1", 1, "GET", '/say/"hi"?a=\\', 200),
        (1_455_944_446_333_333, "192.0.2.11", 1, "POST", "/ü", 302),
        (1_455_944_446_666_666, "192.0.2.12", 1, "", "", 400),
        (1_455_944_447_000_000, "192.0.2.12", 1, "", "", 408),
        (1_455_944_447_500_000, "192.0.2.13", 1, "GET", "/", 200),
        (1_455_944_448_000_000, "-", 1, "OPTIONS", "*", 200),
        (1_455_944_448_500_000, "192.0.2.14", 1, "GET", "/a b c", 0),
    ]


def test_lines_of_a_load_balancer():
    """A client has lost its port, and a target its scheme and host; a request that was malformed has neither part."""
    log = Log([LINES / "alb.log"])
    assert [tuple(request) for request in log] == [
        (1_530_570_180_186_641, "192.168.131.39", 1, "GET", "/", 200),
        (1_530_570_180_186_641, "10.0.1.252", 1, "GET", "/a?b=c", 200),
        (1_530_570_180_186_641, "2001:db8::7", 1, "GET", "/", 101),
        (1_543_616_580_186_641, "192.168.131.39", 1, "", "", 502),
    ]
    assert (log.facts.format, log.facts.missing) == ("AWS ALB", ("user",))


@pytest.mark.parametrize(
    ("file", "users"),
    [
        ("nginx.log", ["-"] * 5 + ["ann"] + ["-"] * 3),
        ("apache.log", ["-", "mary ann", "bob", "-", "-", "-", "-", "-"]),
        ("traefik.log", ["-"] * 8),
        ("traefik.jsonl", ["-"] * 8),
        ("caddy.jsonl", ["-"] * 8),
    ],
)
def test_the_key_may_be_the_user(file, users):
    """With the key `user`, requests count for the user that the server knew, and for `-` without one."""
    assert [request.key for request in Log([LINES / file], key="user")] == users


@pytest.mark.parametrize("file", ["alb.log", "envoy.log", "envoy.jsonl"])
def test_a_format_without_users_cannot_be_keyed_by_them(file):
    """A key that no line has is refused, before all requests seem to be of one client."""
    with pytest.raises(InvalidCall, match="has no user in its lines: use the key 'ip'"):
        Log([LINES / file], key="user")


def test_a_field_of_json_may_be_the_key_and_the_cost():
    """Names are of any field, also within others and in lists; an absent key is `-`."""
    log = Log([LINES / "caddy.jsonl"], key="request.headers.User-Agent.0", cost="size", wanted=())
    assert [request[1:] for request in log] == [
        ("curl/8", 2, "", "", 200),
        ('wo"rd" \\ end', 2, "", "", 200),
        *[("-", 2, "", "", 200)] * 6,
    ]


def test_a_field_that_no_line_has_is_refused():
    """A misspelt field is told with the names that the first line has; a format of text has no other fields."""
    with pytest.raises(
        InvalidCall, match=re.escape("no line has the field 'user_idd' for the key; the first has level, ts,")
    ):
        Log([LINES / "caddy.jsonl"], key="user_idd")
    with pytest.raises(InvalidCall, match="combined has no field for the cost 'tokens': only CSV, TSV and JSON lines"):
        Log([LINES / "nginx.log"], cost="tokens")
    with pytest.raises(InvalidCall, match="combined has no field for the key 'agent'"):
        Log([LINES / "nginx.log"], key="agent")


ENVOY = '[2026-11-17T06:29:22.968Z] "GET / HTTP/1.1" 200 - 0 2 0 - "{}" "{}" "id" "a" "-"\n'


def test_quotes_of_a_client_of_envoy_frame_nobody():
    """Envoy does not escape quotes. An agent may have some; a line in which they look like fields is unreadable."""
    good, quoted = ENVOY.format("192.0.2.1", "x"), ENVOY.format("192.0.2.2", 'a "b" c')
    forged = ENVOY.format('192.0.2.66" "x,192.0.2.3', "x"), ENVOY.format("192.0.2.4", 'x,192.0.2.66" "y')
    log = log_of("".join([good, good, quoted, *forged]))
    assert [request.key for request in log] == ["192.0.2.1", "192.0.2.1", "192.0.2.2"]
    assert log.facts.unreadable == 2
    assert log.facts.bad_lines[0].reason == "quotes that its client sent hide where X-Forwarded-For ends"


def test_the_last_forwarded_address_is_the_client():
    """Earlier addresses are what the client claims; a port is not part of an address."""
    lines = [ENVOY.format(forwarded, "x") for forwarded in ("203.0.113.9, 192.0.2.1", "[2001:db8::1]:80", "-")]
    assert [request[1] for request in read("".join(lines))] == ["192.0.2.1", "2001:db8::1", "-"]


def test_unwanted_fields_are_empty():
    """Without method and path, a faster expression reads the same keys, times and statuses."""
    whole = Log([LINES / "apache.log"])
    assert [(*row[:3], "", "", row[5]) for row in whole] == [
        tuple(request) for request in Log([LINES / "apache.log"], wanted={"status"})
    ]


def test_a_virtual_host_before_the_client_is_not_taken_for_it():
    """Lines with one more field at their start are another format, and are refused."""
    with pytest.raises(InvalidCall, match="its format is unknown; the nearest is the common log format"):
        log_of("".join(f"www.example.com:80 {common(second)}" for second in range(3)))


def test_a_few_lines_of_another_kind_do_not_change_the_format():
    """The format is the one that most of the first lines have; lines about other events are counted."""
    start = '{"level":"info","ts":1794896958.6,"msg":"server running"}\n'
    log = drained(log_of(start + (LINES / "caddy.jsonl").read_text()))
    assert (log.facts.format, log.facts.requests, log.facts.unreadable) == ("Caddy's JSON", 8, 1)
    assert log.facts.bad_lines[0].reason == "it has no status, as every line about a request has"
