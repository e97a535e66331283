"""Policies that are right, wrong, or wrong in ways that only the parser finds, for tests of the schema."""

from __future__ import annotations

from typing import Any

from headgate.limit.grammar import UNITS
from headgate.policy.key import NAMED, WORDS
from headgate.policy.match import METHODS
from headgate.policy.shed_section import ESTIMATORS, SIGNALS
from headgate.policy.token import SHARED


def with_rule(**fields: Any) -> dict[str, Any]:
    return {"rules": [{"key": "ip", "limits": "5/minute", **fields}]}


def matching(**fields: Any) -> dict[str, Any]:
    return with_rule(match=fields)


def values(*each: Any) -> tuple[Any, ...]:
    return each


def with_tokens(**fields: Any) -> dict[str, Any]:
    return {"tokens": {"key": {"env": "SCHEMA_SECRET"}, "algorithms": "HS256", **fields}, **with_rule()}


def shedding(**fields: Any) -> dict[str, Any]:
    return {"rules": [], "stores": {"fleet": "memory://"}, "shed": fields}


PUBLIC_KEY = """\
-----BEGIN PUBLIC KEY-----
MCowBQYDK2VwAyEA+W5ymkm3u/9UG3PYAq6X8pT1+BxeugA/ffVJH4AGPII=
-----END PUBLIC KEY-----
"""
RIGHT: list[Any] = [
    with_rule(),
    with_tokens(),
    *(with_tokens(algorithms=each) for each in values(*SHARED, list(SHARED))),
    *(with_tokens(algorithms=each, key={"env": "SCHEMA_KEY"}) for each in values("EdDSA", ["EdDSA"])),
    with_tokens(header="X-Token", audience="api", issuer="https://id.example.com"),
    {"pepper": {"env": "SCHEMA_SECRET"}, **with_rule()},
    {"deny": {"ip": "192.0.2.1"}, "rules": []},
    {"headers": "none", "rules": []},
    {"pepper": {"file": __file__}, **with_rule()},
    {"version": 1, **with_rule(name="a", store="fleet"), "stores": {"fleet": "redis://cache"}},
    {"namespace": "api", "headers": "none", "plan": {"claim": "plan"}, **with_rule()},
    {"headers": ["draft-11", "x-ratelimit-epoch"], "plan": {"trusted_header": "x-plan"}, **with_rule()},
    {
        "allow": {"ip": ["10.0.0.0/8", "::1"]},
        "deny": {"any": [{"ip": "192.0.2.1"}, {"host": "*.bad.org"}]},
        **with_rule(),
    },
    *(matching(method=word) for word in values(*METHODS, "get", ["GET", "Post"])),
    *(
        matching(path=word)
        for word in values(
            "/", "/a/**", "**", "/{id}/x/{rest:path}", ["/a", "/b*"], "/**/x/**", "//a/", "/*.png", "**/x"
        )
    ),
    matching(route="/users/{id}", host=["a.org", "*.a.org"], plan="pro"),
    matching(header={"X-Plan": "pro"}, query={"q": ["a", "b"]}, cookie={"visit": True}, trusted_header={"x": False}),
    {**matching(any=[{"method": "GET"}, {"all": [{"path": "/a"}, {"not": {"ip": "10.0.0.1"}}]}])},
    matching(),
    *(with_rule(key=word) for word in WORDS),
    *(with_rule(key={word: "name"}) for word in NAMED if word != "param"),
    with_rule(match={"path": "/{id}"}, key=["ip", {"param": "id"}, {"header": "x"}]),
    *(
        with_rule(limits=words)
        for words in values(
            "5 per 2 hours",
            "0/minute",
            "5/minute by fixed-window  scattered block 1m",
            "5/month",
            "1000 per year in Europe/Berlin as quota",
            "5/week from Sunday in America/New_York block 1h; 3/day in UTC",
            "200/500ms",
            "1_000/DAY BY gcra",
            "10/s; 100/m;",
            "100/hour burst 20 block 10m as api",
            "5/minute by sliding-log",
            "50/minute by sliding-window/60",
            ["10/s", "100/m as b"],
            {"default": "1/second", "pro": ["10/second", "100/hour"], "all": ""},
        )
    ),
    *(with_rule(limits=f"5/{unit}") for unit in UNITS),
    *(with_rule(cost=cost) for cost in values(0, 7, {"GET": 1, "POST": 10, "default": 2}, {"default": 3, "after": {}})),
    with_rule(cost={"after": {"header": "X-Cost", "status": {"5xx": 0, "404": 2}}}),
    with_rule(cost=[{"match": {"path": "/export"}, "cost": 25}, {"cost": 0}]),
    with_rule(match={"header": {"x-score": {"below": 30, "above": -0.5}}}),
    *(with_rule(count={"when": {"status": each}}) for each in values(401, "401", "5xx", [401, "403", "5xx"])),
    with_rule(count={"refused": True}),
    with_rule(count={}),
    *(
        with_rule(act=act)
        for act in values("deny", "delay", "shadow", "observe", {"delay": {"hold": 5}}, {"delay": {}})
    ),
    *(with_rule(act={"delay": {"hold": 5, "at_most": time}}) for time in values("200ms", "2 seconds", 1, 0.2, 0.001)),
    with_rule(act={"shadow": {"status": 404, "body": "no", "content_type": "text/html"}}),
    *(with_rule(**{"for": time}) for time in values("10m", "2 hours", "500ms", 30, 0.5)),
    with_rule(**{"for": "1h", "act": "shadow"}),
    *({"repeated": word, **with_rule(repeated=word)} for word in values("refuse", "first", "last", "each")),
    with_rule(missing="deny", on_error="raise", disclose="retry", exempt={"ip": "10.0.0.1"}),
    shedding(),
    {**shedding(), **with_rule()},
    *(shedding(limit=each) for each in values(1, 40, *ESTIMATORS, *({name: {}} for name in ESTIMATORS))),
    shedding(limit={"adaptive": {"initial": 20, "min": 1, "max": 1000}}),
    *(shedding(order=each) for each in values(["a"], ["paid", "free"])),
    shedding(classes={"critical": {"method": "POST", "path": "/pay/**"}, "sheddable": {"header": {"x": True}}}),
    shedding(classes={}),
    shedding(class_header="X-Request-Class", deadline_header="x-timeout-ms"),
    *(shedding(tenant=each) for each in values("ip", "user", {"claim": "org"}, ["user", {"header": "x"}])),
    *(shedding(weights=each) for each in values({}, {"free": 1, "pro": 0.5})),
    *(shedding(timeout=each) for each in values("1s", "200ms", 0, 0.5, 3)),
    shedding(exempt={"path": ["/healthz", "/metrics"]}),
    *(shedding(workers={"signals": each}) for each in values(*SIGNALS, list(SIGNALS))),
    *(shedding(fleet={"limit": "800 in flight", "reserve": each}) for each in values("0%", "20%", "90%")),
    *(shedding(fleet={"limit": each, "store": "fleet"}) for each in values("8 in-flight", "800 In Flight ttl 30s")),
    *(shedding(mode=each) for each in values("enforce", "observe", "off", False)),
]
WRONG: list[Any] = [
    {},
    [],
    "rules",
    None,
    {"rules": []},
    {"rules": None},
    {"rules": {}},
    {"rules": ["5/minute"]},
    {"rules": [{"key": "ip"}]},
    {"rules": [{"limits": "5/minute"}]},
    {"version": 2, **with_rule()},
    *({"repeated": word, **with_rule()} for word in values("all", True, ["first"], None)),
    with_rule(repeated="second"),
    {"version": "1", **with_rule()},
    {"version": True, **with_rule()},
    {"rulez": [], **with_rule()},
    {"namespace": "", **with_rule()},
    {"namespace": 5, **with_rule()},
    {"namespace": "a" * 129, **with_rule()},
    {"headers": "x", **with_rule()},
    {"headers": [], **with_rule()},
    {"headers": [1], **with_rule()},
    {"headers": ["none", "draft-6"], **with_rule()},
    {"headers": ["draft-6", "draft-6"], **with_rule()},
    {"headers": ["x-ratelimit", "x-ratelimit-epoch"], **with_rule()},
    {"plan": "x-plan", **with_rule()},
    {"plan": {}, **with_rule()},
    {"plan": {"header": "x"}, **with_rule()},
    {"plan": {"claim": "a", "trusted_header": "b"}, **with_rule()},
    {"plan": {"claim": ""}, **with_rule()},
    {"plan": {"trusted_header": ""}, **with_rule()},
    *({"pepper": each, **with_rule()} for each in values("s", None, [], {}, {"env": ""}, {"env": 5}, {"value": "s"})),
    {"pepper": {"env": "SCHEMA_SECRET", "file": __file__}, **with_rule()},
    *({"tokens": each, **with_rule()} for each in values(None, "s", [], {}, {"algorithms": "HS256"})),
    {"tokens": {"key": {"env": "SCHEMA_SECRET"}}, **with_rule()},
    *(
        with_tokens(algorithms=each)
        for each in values("none", ["none"], ["HS256", "none"], ["HS256", "RS256"], [], None, 5, "hs256", "HS1")
    ),
    *(with_tokens(key=each) for each in values("s" * 64, None, {}, {"env": ""})),
    *(
        with_tokens(**{field: each})
        for field in ("header", "audience", "issuer")
        for each in values("", 5, None, ["a"])
    ),
    with_tokens(leeway=5),
    {"stores": ["redis://x"], **with_rule()},
    {"stores": {"a": 1}, **with_rule()},
    {"allow": "10.0.0.0/8", **with_rule()},
    {"deny": {"adress": "::1"}, **with_rule()},
    *(with_rule(name=name) for name in values("", "1st", "a b", "a" * 65, 5, None)),
    *(matching(method=word) for word in values("FETCH", "", [], 5, ["GET", 5])),
    *(
        matching(path=word)
        for word in values(
            "a",
            "",
            [],
            5,
            "/{",
            "/a}",
            "/{1}",
            "/{a:path}/b",
            "/**/{a:path}",
            "/a**",
            "/x{a}",
            "/{a}/{a}",
            "/**/**/**",
            "/" + "a" * 1024,
        )
    ),
    *(matching(ip=word) for word in values("everywhere", "", [], 10, "10.0.0.0/1234")),
    *(matching(header=word) for word in values({}, "x", {"x": 1}, {"x": []}, {"x": None}, ["x"])),
    matching(any=[]),
    matching(any={}),
    matching(all=["x"]),
    matching(**{"not": []}),
    matching(paths="/a"),
    with_rule(match=[]),
    matching(plan=5),
    matching(route=[]),
    matching(host=True),
    *(
        with_rule(key=key)
        for key in values("addr", "", [], {}, 5, None, {"header": ""}, {"header": 5}, {"header": "a", "cookie": "b"})
    ),
    with_rule(key=["ip", []]),
    with_rule(key={"body": "x"}),
    *(
        with_rule(limits=words)
        for words in values(
            "5",
            "",
            None,
            [],
            {},
            "5/",
            "/minute",
            "five/minute",
            "5/fortnight",
            "5/2 months",
            "5/quarter",
            "5/hour in Europe/Berlin",
            "5/week from dawn",
            "1.5/second",
            "-5/minute",
            5,
            True,
            "5perday",
            "5/minute by magic",
            "5/minute by gcra/60",
            "5/minute by sliding-window/0",
            "5/minute burst",
            "5/minute burst 0",
            "5/minute as 1st",
            "5/minute block",
            "5/minute and more",
            ["5/minute", ""],
            [5],
            {"default": {"a": "5/minute"}},
            {"default": 5},
            {"free": "5/minute"},
        )
    ),
    *(with_rule(cost=cost) for cost in values(-1, 1.5, "1", True, None, [1], {"get": 1}, {"GET": -1}, {"after": 5})),
    with_rule(cost={"after": {"headers": "x"}}),
    *(with_rule(cost=cost) for cost in values([], [{"match": {}}], [{"cost": -1}], [{"cost": 1, "when": {}}])),
    *(with_rule(match={"header": {"x": wanted}}) for wanted in values({}, {"below": "3"}, {"under": 3})),
    with_rule(cost={"after": {"header": 5}}),
    with_rule(cost={"after": {"status": {"6xx": 0}}}),
    with_rule(cost={"after": {"status": {"404": -1}}}),
    with_rule(cost={"after": {"status": [404]}}),
    *(
        with_rule(count=count)
        for count in values(5, [], {"when": {}}, {"when": 401}, {"refused": "yes"}, {"whenever": {}})
    ),
    *(with_rule(count={"when": {"status": each}}) for each in values(99, 600, "4x", "ok", None, True, [], [401, 999])),
    *(
        with_rule(act=act)
        for act in values("refuse", "", 5, None, [], {}, {"deny": 5}, {"observe": {}}, {"delay": None}, {"delay": 5})
    ),
    with_rule(act={"delay": {"hold": 0}}),
    *(with_rule(act={"delay": {"at_most": time}}) for time in values("soon", "", 0, -1, 0.0001, True, None, [], 1e9)),
    with_rule(act={"delay": {}, "shadow": {}}),
    with_rule(act={"delay": {"keep": 1}}),
    with_rule(act={"shadow": {"status": 199}}),
    with_rule(act={"shadow": {"status": 600}}),
    with_rule(act={"shadow": {"content_type": "html"}}),
    with_rule(cost=2**53 + 1),
    {"rules": [{}]},
    with_rule(store=["fleet"]),
    with_rule(store=None),
    with_rule(act={"shadow": {"body": 5}}),
    with_rule(act={"shadow": {"code": 5}}),
    *(with_rule(**{"for": time}) for time in values("soon", "", 0, -1, True, None, [], "10", "1 month")),
    with_rule(**{"for": "10m", "act": "delay"}),
    with_rule(**{"for": "10m", "act": {"delay": {"hold": 5}}}),
    with_rule(missing="ignore"),
    with_rule(on_error="fail"),
    with_rule(disclose=True),
    with_rule(priority=1),
    with_rule(exempt=[]),
    with_rule(limit="5/minute"),
    *({"rules": [], "shed": each} for each in values(None, 40, [], "adaptive")),
    shedding(limits=40),
    *(shedding(limit=each) for each in values(0, -1, True, None, "fast", [], {}, {"fixed": {}}, {"adaptive": 5})),
    *(shedding(limit={"vegas": {"max": each}}) for each in values(0, "5", True, None, 1.5)),
    shedding(limit={"adaptive": {"maximum": 5}}),
    shedding(limit={"adaptive": {}, "aimd": {}}),
    *(shedding(order=each) for each in values([], "critical", ["a", "a"], [5], [""], None)),
    *(shedding(classes=each) for each in values([], None, {"critical": 5}, {"critical": {"pth": "/"}})),
    *(shedding(**{name: each}) for name in ("class_header", "deadline_header") for each in values("", 5, None, [])),
    *(shedding(tenant=each) for each in values("org", "", [], None, {"body": "x"})),
    *(shedding(weights={"pro": each}) for each in values(0, -1, True, "5", None)),
    shedding(weights=[5]),
    *(shedding(timeout=each) for each in values("soon", -1, True, None, [])),
    *(shedding(exempt=each) for each in values("/healthz", [], None)),
    *(shedding(workers=each) for each in values({}, None, ["busy"], {"signals": []}, {"signals": "disk"})),
    *(shedding(fleet=each) for each in values({}, None, "8 in flight", {"limit": 8}, {"limit": "8/minute"})),
    *(shedding(fleet={"limit": "8 in flight", "reserve": each}) for each in values(20, "91%", "20", "-1%", None)),
    *(shedding(mode=each) for each in values("on", True, None, "")),
]
BEYOND = {
    "a queue where nothing waits": with_rule(limits="5/minute queue 3"),
    "two rules of one name": {"rules": [*with_rule(name="a")["rules"], *with_rule(name="a")["rules"]]},
    "a store that is not there": with_rule(store="fleet"),
    "a param that is not in the path": with_rule(match={"path": "/{id}"}, key={"param": "user"}),
    "a network with bits beyond its prefix": matching(ip="10.0.0.1/8"),
    "a delay of a window": with_rule(limits="50/minute by fixed-window", act="delay"),
    "a clause said twice": with_rule(limits="5/minute burst 2 burst 3"),
    "a burst of a window": with_rule(limits="5/minute burst 2 by fixed-window"),
    "a secret that is not there": {"pepper": {"env": "SCHEMA_NOTHING"}, **with_rule()},
    "a key that is none": with_tokens(algorithms="RS256"),
    "a class that is not there": shedding(classes={"urgent": {}}),
    "a first limit above the highest": shedding(limit={"adaptive": {"initial": 20, "max": 10}}),
    "a fleet with a store that is not there": shedding(fleet={"limit": "8 in flight", "store": "cache"}),
    "a fleet with two limits": shedding(fleet={"limit": "8 in flight; 9 in flight"}),
    "a burst that does not fit": with_rule(limits="10/minute burst 100_000_000"),
}
"""What only the parser finds: it relates places to each other, and counts."""
