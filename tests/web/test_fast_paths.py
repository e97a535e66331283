"""Fast paths: the short way of most requests has the answers of the long way, and leaves to it what it cannot do."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate import MemoryStore
from headgate.caches import MOST_METHODS, MOST_PATHS, PathCache
from headgate.errors import InvalidPolicy
from headgate.policy import Policy, compiled
from headgate.policy.fast_path import FastPath
from headgate.testing import ManualClock
from headgate.web.asgi import RateLimitMiddleware as Asgi
from headgate.web.endpoint import EndpointLimit, rules_at
from headgate.web.request_limits import limits_of
from headgate.web.wsgi import RateLimitMiddleware as Wsgi
from tests.support.edges import LATER, Answer, asgi, exchange, read_answer, scope, wsgi
from tests.support.inside import fast_paths_kept, older_than, runtime_of, shortcuts_kept
from tests.support.stores import away

KEYS: list[Any] = [
    "ip", "everyone", {"header": "x-key"}, ["ip", {"header": "x-key"}], {"param": "id"},
    [{"constant": "one"}, "ip"], [{"constant": "a|b"}, {"constant": "c\\\\d"}, "ip"],
]  # fmt: skip
LONG = [*[{"constant": letter * 128} for letter in "abcdefg"], {"constant": "h" * 110}, "ip"]
"""A key that is a little too long with most addresses, and then is hashed."""
RULES = st.fixed_dictionaries(
    {
        "key": st.sampled_from(KEYS),
        "limits": st.sampled_from(
            ["2/minute", "3/hour by fixed-window", "1/second; 5/minute", "4/minute by sliding-log"]
        ),
        "match": st.sampled_from([{"path": "/{id}"}, {"path": "/{id}", "method": "GET"}]),
        "act": st.sampled_from(["deny", {"shadow": {"status": 202, "body": "fine"}}]),
        "cost": st.sampled_from([0, 1, 2, {"GET": 3, "default": 1}]),
        "missing": st.sampled_from(["ip", "skip", "deny"]),
        "disclose": st.sampled_from(["full", "retry", "none"]),
    }
)
REQUESTS = st.tuples(
    st.sampled_from(["GET", "POST", "HEAD"]),
    st.sampled_from(["/a", "/b", "/a/b", "/%61", "/ä"]),
    st.sampled_from([{}, {"x-key": "one"}, {"x-key": ""}, {"x-key": "two", "accept": "text/plain"}]),
    st.sampled_from([0, 0, 1, 20]),
)


async def _hello(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": [(b"access-control-allow-origin", b"*")]})
    await send({"type": "http.response.body", "body": b"hello"})


def _hello_wsgi(environ: Any, start_response: Any) -> list[bytes]:
    start_response("200 OK", [("Access-Control-Allow-Origin", "*")])
    return [b"hello"]


@given(
    st.lists(RULES, min_size=1, max_size=3),
    st.lists(REQUESTS, max_size=12),
    st.sampled_from(["draft-11", ["draft-6", "x-ratelimit"]]),
)
def test_the_short_way_answers_as_the_long_way(rules, requests, headers):
    """A `plan` function sends every request the long way; the answers are the same to the byte."""
    policy = {"rules": [{"name": f"r{at}", **rule} for at, rule in enumerate(rules)], "headers": headers}
    for edge, app, ask in ((Asgi, _hello, asgi), (Wsgi, _hello_wsgi, wsgi)):
        clock = ManualClock(LATER)
        short = edge(app, policy, store=MemoryStore(clock=clock))
        long = edge(app, policy, store=MemoryStore(clock=clock), plan=lambda view: None)
        for method, path, fields, later in requests:
            clock.advance(later)
            spelling = path if ask is asgi else path.encode().decode("latin-1")
            answers = [ask(each, method, spelling, headers=fields) for each in (short, long)]
            assert answers[0] == answers[1]
        assert not any(fast_paths_kept(long).values())


def served(app: Any, *request: Any, **more: Any) -> Answer:
    return asgi(app, *request, **more)


def test_the_first_request_finds_its_fast_path():
    """A path gets its fast path with the first request, and a very long path is not kept."""
    app = Asgi(_hello, {"rules": [{"match": {"path": "/a"}, "key": "ip", "limits": "2/minute"}]})
    assert not fast_paths_kept(app)
    assert [served(app, "GET", "/a").status for _ in range(3)] == [200, 200, 429]
    assert [key for key, found in fast_paths_kept(app).items() if found] == [("GET", "/a")]
    served(app, "GET", "/" + "a" * 300)
    assert len(fast_paths_kept(app)) == 1  # what is that long is not kept


@pytest.mark.parametrize("key", ["ip", [{"constant": "one"}, "ip"], LONG])
@pytest.mark.parametrize("peer", ["a|b", "10.0.0.1", "198.51.100.4"])
@pytest.mark.parametrize("lines", [{}, {"x-forwarded-for": "203.0.113.9"}, {"x-forwarded-for": "b|c"}])
def test_both_ways_count_one_client_behind_proxies_under_one_key(key, peer, lines):
    """Whatever its address looks like: a request of the short way and one of the long way use up one limit of two."""
    rule = {"name": "r", "match": {"path": "/**"}, "key": key, "limits": "2/minute"}
    options = {"store": MemoryStore(clock=ManualClock(LATER)), "trusted_proxies": ["10.0.0.0/8"]}
    for edge, app in ((Asgi, _hello), (Wsgi, _hello_wsgi)):
        policy = {"namespace": edge.__module__, "rules": [rule]}
        short, long = edge(app, policy, **options), edge(app, policy, plan=lambda view: None, **options)
        answers = [
            wsgi(each, headers=lines, REMOTE_ADDR=peer).status
            if edge is Wsgi
            else asgi(each, headers=lines, client=(peer, 1)).status
            for each in (short, long, short, long)
        ]
        assert answers == [200, 200, 429, 429]


def test_a_line_that_a_client_sends_itself_is_not_its_address():
    """A proxy that adds a line of its own to the header is believed, and not the line above it."""
    rule = {"name": "r", "match": {"path": "/**"}, "key": "ip", "limits": "2/minute"}
    app = Asgi(_hello, {"rules": [rule]}, trusted_proxies=["10.0.0.0/8"])
    statuses = []
    for number in range(3):
        lines = [b"6.6.6.%d" % number, b"203.0.113.9"]
        given = {**scope(client=("10.0.0.1", 1)), "headers": [(b"x-forwarded-for", line) for line in lines]}
        statuses.append(read_answer(asyncio.run(exchange(app, given))).status)
    assert statuses == [200, 200, 429]


@pytest.mark.parametrize("key", ["ip", {"param": "id"}])
@pytest.mark.parametrize(("edge", "app", "ask"), [(Asgi, _hello, asgi), (Wsgi, _hello_wsgi, wsgi)])
def test_paths_under_the_same_rules_have_one_fast_path_made_once(edge, app, ask, key, monkeypatch):
    """A path that was never seen before costs a look at patterns: no limits are put together for it."""
    made: list[Any] = []
    put_together = compiled.put_together

    def noted(*given: Any) -> Any:
        made.append(given)
        return put_together(*given)

    monkeypatch.setattr(compiled, "put_together", noted)
    rules = [{"match": {"path": "/users/{id}"}, "key": key, "limits": "2/hour"}, {"key": "ip", "limits": "999/hour"}]
    limited = edge(app, {"rules": rules})
    paths = [f"/users/{at}" for at in range(50)] * 3
    found = [ask(limited, "GET", path).status for path in paths]
    assert found == ([200] * 2 + [429] * 148 if key == "ip" else [200] * 100 + [429] * 50)
    assert len(made) == 1


def test_a_flood_of_paths_leaves_those_that_are_asked_for_again():
    """The table stays within its bounds, whatever the flood."""
    found: list[str] = []

    def find(method: str, path: str) -> str:
        found.append(path)
        return path

    recent: PathCache[str] = PathCache(find)
    for at in range(10 * MOST_PATHS):
        assert recent["GET"][f"/flood/{at}"] == f"/flood/{at}"
        if at % 1000 == 0:
            assert recent["GET"]["/known"] == "/known"
    assert found.count("/known") == 1
    assert len(recent["GET"]) <= MOST_PATHS and older_than(recent["GET"]) <= MOST_PATHS
    recent["GET"]["/" + "a" * 300]
    assert "/" + "a" * 300 not in recent["GET"]


def test_a_flood_of_methods_leaves_the_paths_of_common_ones():
    """Invented methods have few tables, which share the bound of all paths, and a known path is found once."""
    found: list[str] = []

    def find(method: str, path: str) -> str:
        found.append(method)
        return path

    recent: PathCache[str] = PathCache(find)
    for at in range(2 * MOST_PATHS):
        assert recent[f"METHOD{at}"]["/"] == "/"
        assert recent["GET"]["/"] == "/"
    assert found.count("GET") == 1
    assert len(recent) <= MOST_METHODS
    for at in range(3 * MOST_PATHS):
        recent[f"METHOD{at % 8}"][f"/{at}"]
        recent["GET"]["/"]
    assert found.count("GET") == 1
    assert sum(map(len, recent.values())) <= MOST_PATHS


def test_a_flood_of_methods_makes_one_fast_path():
    """Methods that clients invent share one fast path, in front and at an endpoint."""
    app = Asgi(_hello, {"rules": [{"key": "ip", "limits": "2/minute"}]})
    limits = (EndpointLimit("1/minute", {}),)
    for at in range(100):
        assert limits_of(runtime_of(app))().admit({}, f"METHOD{at}", "/search", f"192.0.2.{at}", limits) is True
    assert len(runtime_of(app).fast_paths_at) == 1
    for at in range(100):
        assert isinstance(runtime_of(app).fast_paths[f"METHOD{at}"]["/"], FastPath)
    assert len(shortcuts_kept(app)) == 1


@pytest.mark.parametrize(
    "rule",
    [
        {"act": "observe"}, {"act": "delay"}, {"count": {"when": {"status": 500}}}, {"count": {"refused": True}},
        {"cost": {"after": {"header": "x-cost"}}}, {"cost": lambda view: 1}, {"limits": lambda view: "2/minute"},
        {"limits": {"default": "2/minute", "pro": "3/minute"}}, {"match": {"header": {"x-key": "one"}}},
        {"exempt": {"ip": "10.0.0.0/8"}},
    ],
)  # fmt: skip
def test_rules_that_look_at_more_than_their_key_have_none(rule):
    """A rule with conditions, functions, plans or counts by the response goes the long way."""
    app = Asgi(_hello, {"rules": [{"key": "ip", "limits": "2/minute", **rule}]})
    served(app)
    assert fast_paths_kept(app) == {("GET", "/"): False}


@pytest.mark.parametrize("field", [{"allow": {"ip": "203.0.113.0/24"}}, {"deny": {"ip": "10.0.0.0/8"}}])
def test_policies_that_look_at_every_request_have_none(field):
    """A policy with lists goes the long way."""
    app = Asgi(_hello, {"rules": [{"key": "ip", "limits": "1/minute"}], **field})
    assert [served(app).status for _ in range(2)] == ([200, 200] if "allow" in field else [200, 429])
    assert fast_paths_kept(app) == {("GET", "/"): False}


def test_a_store_that_has_no_answer_any_more_leaves_it_to_the_rule():
    """The fast_path gives up, and the long way follows `on_error`."""
    for on_error, expected in {"deny": [200, 200, 503], "allow": [200, 200, 200]}.items():
        rule = {"key": "ip", "limits": "2/minute", "on_error": on_error}
        app = Wsgi(_hello_wsgi, {"rules": [rule]}, store=away(answers=2))
        assert [wsgi(app).status for _ in range(3)] == expected


@pytest.mark.parametrize(("edge", "app", "ask"), [(Asgi, _hello, asgi), (Wsgi, _hello_wsgi, wsgi)])
def test_requests_that_a_fast_path_decides_need_no_limits_of_their_own(edge, app, ask, monkeypatch):
    """A middleware keeps no `RequestLimits` for a request that no rule matches or that a fast path decides."""
    rules = [
        {"match": {"path": "/a"}, "key": "ip", "limits": "1/minute"},
        {"match": {"path": "/b"}, "key": {"header": "x-key"}, "limits": "1/minute"},
        {"match": {"path": "/c"}, "key": "ip", "limits": "1/minute", "count": {"when": {"status": 500}}},
    ]
    limited = edge(app, {"rules": rules})
    made: list[Any] = []
    kind = limited._limits

    def noted() -> Any:
        made.append(kind())
        return made[-1]

    monkeypatch.setattr(limited, "_limits", noted)
    paths = ["/a", "/a", "/b", "/b", "/none"]
    assert [ask(limited, "GET", path, headers={"x-key": "k"}).status for path in paths] == [200, 429, 200, 429, 200]
    assert not made
    assert ask(limited, "GET", "/c").status == 200
    assert len(made) == 1


@pytest.mark.parametrize(
    ("keys", "by_address"),
    [
        (["ip"], True), ([[{"constant": "one"}, "ip"]], True), ([[{"constant": "one"}, "ip"]] * 2, True),
        ([[{"constant": "one"}, "ip"], "ip"], False), ([["ip", {"constant": "one"}]], False),
        ([[{"constant": "one"}, "ip"], [{"constant": "two"}, "ip"]], False),
        ([["route", "ip"]], False), ([[{"constant": "x" * 5000}, "ip"]], True),
    ],
)  # fmt: skip
def test_the_address_alone_decides_where_the_rest_of_the_key_is_known(keys, by_address):
    """Rules whose keys differ in the client's address only are asked about without a view of the request."""
    rules = [{"name": f"r{at}", "key": key, "limits": "2/minute"} for at, key in enumerate(keys)]
    app = Asgi(_hello, {"rules": rules})
    way = runtime_of(app).fast_paths["GET"]["/"]
    assert isinstance(way, FastPath) and way.by_address is by_address
    assert [served(app).status for _ in range(3)] == [200, 200, 429]


def test_a_fast_path_believes_trusted_proxies():
    """The client behind a trusted proxy is counted by the address that the proxy saw."""
    app = Asgi(_hello, {"rules": [{"key": "ip", "limits": "1/minute"}]}, trusted_proxies=["203.0.113.9"])
    told = ["198.51.100.1", "198.51.100.1", "198.51.100.2", "6.6.6.6, 198.51.100.2"]
    assert [served(app, headers={"x-forwarded-for": each}).status for each in told] == [200, 429, 200, 429]


def test_a_new_policy_has_new_fast_paths(tmp_path):
    """With the numbers of now, over the counts of before."""
    file = tmp_path / "policy.json"
    file.write_text('{"rules": [{"key": "ip", "limits": "1/minute by fixed-window"}]}')
    app = Asgi(_hello, file)
    assert [served(app).status for _ in range(2)] == [200, 429]
    file.write_text('{"rules": [{"key": "ip", "limits": "4/minute by fixed-window"}]}')
    assert app.reload()
    assert [served(app).status for _ in range(4)] == [200, 200, 200, 429]


def test_a_limit_at_an_endpoint_may_name_a_store_of_the_policy():
    """Which is looked for when there is a policy, not where the limit is written."""
    limit = EndpointLimit("1/minute", {"store": "fleet"})
    assert rules_at("/search app.search", [limit])[0]["store"] == "fleet"
    with pytest.raises(InvalidPolicy, match="store"):
        Policy({"rules": rules_at("/search app.search", [limit])})


def test_unnamed_limits_of_an_endpoint_keep_off_the_names_that_were_given():
    """A limit without a name is numbered where the endpoint's name is taken."""
    limits = [
        EndpointLimit("1/minute", {"name": "search"}),
        EndpointLimit("2/minute", {}),
        EndpointLimit("3/minute", {}),
    ]
    assert [rule["name"] for rule in rules_at("/search app.search", limits)] == ["search", "search.2", "search.3"]
