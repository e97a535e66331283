"""Everything that reads text which others wrote, and how its time grows with the length of that text.

A reader that goes back over what it has read takes n * n, and a client that knows it stops a server with one header. So
each is given hostile texts of n and of 8 n characters: a linear one takes 8 times as long, a quadratic one 64 times.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import product
from time import thread_time
from types import SimpleNamespace
from typing import Any, NamedTuple

from headgate.errors import HeadgateError
from headgate.limit import Limit
from headgate.limit.grammar import parse_name, parse_period
from headgate.policy import Policy, Proxies, RequestView
from headgate.policy.carried_counts import compare, with_carried
from headgate.policy.path import compile_host, compile_pattern, plain_host
from headgate.policy.source import read_text
from headgate.policy.token import Tokens
from headgate.policy.values import COOKIE, QUERY, Unclear, cookies, credentials
from headgate.shaper.base import as_queue
from headgate.stores import open_store
from headgate.stores.options import read_options
from headgate.stores.redis.url import DEFAULTS, EXAMPLE, OPTIONS, read_url
from headgate.web.added_fields import merge_exposed
from headgate.web.endpoint import route_name
from headgate.web.grpc.rpc import Rpc, address_of, read_rpc
from headgate.web.refusal import Refusal, negotiate

TIMES = 8
ALLOWED = 4
"""How many times slower than linear a longer text may be: noise, caches, growing tables. A square is 8 times."""
FLOOR = 0.02
"""Seconds that are no sign of anything."""
ATTEMPTS = 5

Read = Callable[[str], object]


class Reader(NamedTuple):
    """One of them: what it understands, and where it has to decide."""

    read: Read
    marks: str
    """Characters that mean something to it."""
    samples: tuple[str, ...] = ("",)
    """Texts that it understands, or almost: hostile ones begin and end with them."""
    size: int = 2_000


class Text(NamedTuple):
    """A hostile text: a beginning, something again and again, and an end."""

    start: str
    again: str
    end: str

    def of(self, length: int) -> str:
        return self.start + self.again * max(1, length // len(self.again)) + self.end


def _path(*patterns: str) -> Read:
    compiled = [compile_pattern(each) for each in patterns]
    return lambda text: [each.match(text) for each in compiled]


def _host(*patterns: str) -> Read:
    compiled = [compile_host(each) for each in patterns]
    return lambda text: [each(plain_host(text)) for each in compiled]


def _view(**headers: str) -> RequestView:
    return RequestView("GET", "/", {name.replace("_", "-"): [text] for name, text in headers.items()}, "10.0.0.1")


def _forwarded(header: str, **how: Any) -> Read:
    proxies = Proxies(header=header, **how)
    return lambda text: proxies.client("10.0.0.1", [text])


def _lines(header: str) -> Read:
    """The same text as this number of lines."""
    proxies = Proxies(["10.0.0.0/8"], header=header)
    return lambda text: proxies.client("10.0.0.1", [text[at : at + 9] for at in range(0, len(text), 9)])


def _query(text: str) -> object:
    view = _view()
    view.query_string = text
    return view.query("q")


def _token(header: str) -> Read:
    import jwt

    tokens = Tokens(lambda token: jwt.decode(token, "k" * 32, algorithms=["HS256"]), header)
    before = "Bearer " if header == "authorization" else ""
    return lambda text: tokens.claims(_view(**{header.replace("-", "_"): before + text}))


def _cost(text: str) -> object:
    from headgate.policy.settling import _real

    return _real(_COSTLY.rules[0], 1, 200, lambda name: text)


_COSTLY = Policy({"rules": [{"key": "ip", "limits": "9/hour", "cost": {"after": {"header": "x-cost"}}}]})


def _metadata(text: str) -> object:
    pairs = tuple((f"x-{piece[:3]}", piece) for piece in text.split(","))
    context = SimpleNamespace(invocation_metadata=lambda: pairs, peer=lambda: f"ipv4:{text}")
    return read_rpc(Rpc("/a.B/C", context, None), None).client


def _in_rule(*path: str) -> Read:
    """The text as a value in a policy."""

    def read(text: str) -> object:
        value: Any = text
        for step in reversed(path):
            value = {step: value}
        return Policy({"rules": [{"key": "ip", "limits": "1/hour", **value}]})

    return read


def _file(suffix: str) -> Read:
    return lambda text: read_text(f"policy.{suffix}", text)


URLS = (
    "redis://",
    "redis+cluster://a,b/",
    "redis+sentinel://a:1,b/m",
    "memory://?max_keys=",
    "redis://a?deadline=",
    "",
)
LIMIT = ("", "1/", "10/minute ", "1 per ", "1 in flight ", "1/s burst ", "1/s as ", "1/s block ", "1 in flight ttl ")
TOML = ("", "a = ", "[", "[[", 'a = "', "a = '''", 'a = """', "a = [", "a = {", "a.", "[a.", '"')
YAML = ("", "a: ", "- ", "[", "{", "a: |\n ", "a: '", 'a: "', "? ", "&a ", "a: 1", "a: 0x", "# ", "%")
JSON = ("", "{", "[", '{"a": ', '["', '{"a": "', "[1", "[-", "[1e")

READERS: dict[str, Reader] = {
    "path": Reader(
        _path("/a/**/b/**/c", "/*-*-*-*/x", "**/{id}/*.png", "/f/{rest:path}"), "/*-.ab%{}", ("", "/a/", "/f/")
    ),
    "host": Reader(
        _host("*-*-*-*.preview.example.com", "a*a*a.org", "[::1]"), "-.:*a[]", ("", "a", ".example.com", "[")
    ),
    "x-forwarded-for": Reader(_forwarded("x-forwarded-for", trusted=["10.0.0.0/8"]), ', ":[].;1=\t', ("", "10.0.0.2,")),
    "x-forwarded-for by hops": Reader(_forwarded("x-forwarded-for", hops=9), ', ":[].;1=\t', ("", "10.0.0.2,")),
    "forwarded": Reader(
        _forwarded("forwarded", trusted=["10.0.0.0/8"]), ', ":[].;1=\t\\', ("", 'for="', "for=10.0.0.2,")
    ),
    "forwarded lines": Reader(_lines("forwarded"), ',;="\\ ', ("", 'for="')),
    "x-forwarded-for lines": Reader(_lines("x-forwarded-for"), ',;="\\ ', ("", "10.0.0.2")),
    "cookie": Reader(lambda text: _view(cookie=text).cookie("a"), '; ="a,\t', ("", "a=", 'a="')),
    "cookie in a condition": Reader(
        lambda text: [COOKIE.may_be(each) for each in cookies([text], "a")], '; ="a,\t%\\', ("", "a=", 'a="')
    ),
    "query in a condition": Reader(QUERY.may_be, "%+a0\xff", ("", "%f")),
    "credentials": Reader(credentials, "= aA\t,", ("", "Bearer ", "Basic ")),
    "query": Reader(_query, "&=%+;a0", ("", "q=", "%f")),
    "authorization": Reader(
        _token("authorization"), ".-_=aA ", ("", "eyJhbGciOiJIUzI1NiJ9.", "eyJhbGciOiJIUzI1NiJ9.e30.")
    ),
    "token in another header": Reader(_token("x-token"), ".-_=aA ", ("", "eyJhbGciOiJIUzI1NiJ9.")),
    "accept": Reader(negotiate, ",;=*/ q0.\t", ("", "text/plain;", "text/plain;q=", "*/*,")),
    "exposed headers": Reader(lambda text: merge_exposed(text, "RateLimit"), ", a*\t", ("", "X-A,")),
    "cost header": Reader(_cost, "0123456789_+- ", ("", "1", "-", "0x")),
    "grpc metadata": Reader(_metadata, ",:[]%.1", ("", "%5B", "1.2.3.4:")),
    "grpc peer": Reader(lambda text: address_of(f"ipv6:{text}"), ":%5B]D.1", ("", "%5B")),
    "limit": Reader(Limit.parse_all, " /;1_smbyaspertl-\t", LIMIT),
    "shaper": Reader(as_queue, " /1_queue;", ("", "1/s queue ")),
    "period": Reader(parse_period, " 1_ms\t", ("", "1", "1 ")),
    "name": Reader(parse_name, "a.-_1 ", ("", "a")),
    "content type": Reader(lambda text: Refusal(b"", text), "/ ;=a!", ("", "a/", "a/b;")),
    "route name": Reader(route_name, "/{}<>-._ a", ("", "/a")),
    "redis url": Reader(read_url, ":/?&=@,%[]#.a1", URLS),
    "redis url options": Reader(lambda url: read_options(url, DEFAULTS, OPTIONS, EXAMPLE), ":/?&=@,%[]#.a1", URLS),
    "store url": Reader(
        lambda text: open_store(text, None), ":/?&=@,%[]#.a1", ("", "memory:", "memory://", "memory://?max_keys=")
    ),
    "toml": Reader(_file("toml"), ".[]{}=\"'#,\\\n a1-_+:", TOML),
    "yaml": Reader(_file("yaml"), "-?:,[]{}#&*!|>'\"%@`\n a1_.~<=", YAML, 500),
    "json": Reader(_file("json"), '{}[],:"\\ \na1-.e', JSON),
    "rule name": Reader(_in_rule("name"), "a.-_1 "),
    "rule path": Reader(_in_rule("match", "path"), "/*{}:a", ("", "/", "/{", "/**/")),
    "rule host": Reader(_in_rule("match", "host"), ".*:[]a", ("", "*.", "[")),
    "rule ip": Reader(_in_rule("match", "ip"), ".:/1f", ("", "10.0.0.0/", "::")),
    "rule limits": Reader(_in_rule("limits"), " /;1_smqueby", ("1/s ", "1/")),
    "rule delay": Reader(lambda text: _in_rule("limits")(text), " queue1", ("1/s queue",)),
    "rule for": Reader(_in_rule("for"), " 1_ms", ("", "1")),
    "rule content type": Reader(_in_rule("act", "shadow", "content_type"), "/ ;=a!", ("", "a/", "a/b;")),
    "rule status": Reader(_in_rule("count", "when", "status"), "1x ", ("", "4")),
}


class Grown(NamedTuple):
    """A policy of some size: what is linear in a text may not be in the number of fields."""

    make: Callable[[int], Any]

    def of(self, length: int) -> Any:
        return self.make(length)


def _rule(**fields: Any) -> dict[str, Any]:
    return {"key": "ip", "limits": "1/hour", **fields}


def _policy(value: Any) -> object:
    return Policy(value)


def _reloaded(value: Any) -> object:
    """A policy, and after it the same rules under other names and with other algorithms."""
    old, renamed, other = map(Policy, value)
    first = compare(old, renamed, (), 0)
    second = compare(renamed, other, first.carried, 0)
    assert len(second.carried) == 2 * len(first.carried) == 2 * len(old.rules)
    return with_carried(other, second.carried)


def _versions(count: int) -> list[Any]:
    paths = [{"path": f"/{at % 7}"} for at in range(count)]
    return [
        {"rules": [_rule(name=f"{name}{at}", match=path, limits=limits) for at, path in enumerate(paths)]}
        for name, limits in (("a", "9/hour"), ("b", "9/hour"), ("b", "9/minute"))
    ]


def _named(count: int, value: Any) -> dict[str, Any]:
    return {f"n{at}": value for at in range(count)}


POLICIES: dict[str, tuple[Read, Grown]] = {
    "json: fields": (_file("json"), Grown(lambda n: json.dumps(_named(n, 1)))),
    "json: fields said twice": (_file("json"), Grown(lambda n: "{" + ", ".join(['"a": 1'] * n) + "}")),
    "json: lists": (_file("json"), Grown(lambda n: json.dumps([[1]] * n))),
    "toml: parts of a key": (_file("toml"), Grown(lambda n: "a." * n + "a = 1")),
    "toml: quoted parts of a key": (_file("toml"), Grown(lambda n: "[" + '"a" . ' * n + "a]")),
    "toml: keys": (_file("toml"), Grown(lambda n: "".join(f"n{at} = 1\n" for at in range(n)))),
    "toml: tables": (_file("toml"), Grown(lambda n: "".join(f"[n{at}.a]\n" for at in range(n)))),
    "toml: tables in lists": (_file("toml"), Grown(lambda n: "[[a]]\nb.c = 1\n" * n)),
    "yaml: keys": (_file("yaml"), Grown(lambda n: "".join(f"n{at}: 1\n" for at in range(n)))),
    "yaml: a number by 60": (_file("yaml"), Grown(lambda n: "a: 1" + ":1" * n * 9)),
    "yaml: aliases": (_file("yaml"), Grown(lambda n: "a: &a 1\nb: [" + "*a, " * n + "]")),
    "rules": (_policy, Grown(lambda n: {"rules": [_rule(match={"path": f"/{at}"}) for at in range(n)]})),
    "unknown fields": (_policy, Grown(lambda n: {"rules": [_rule(**_named(n, 1))]})),
    "unknown stores": (
        _policy,
        Grown(lambda n: {"stores": _named(n, "memory://"), "rules": [_rule(store=f"m{at}") for at in range(n)]}),
    ),
    "unknown names in keys": (
        _policy,
        Grown(
            lambda n: {"rules": [_rule(match={"path": [f"/{{a{at}}}" for at in range(n)]}, key=[{"param": "b"}] * n)]}
        ),
    ),
    "rules of one name": (_policy, Grown(lambda n: {"rules": [_rule(name="a") for _ in range(n)]})),
    "hosts": (_policy, Grown(lambda n: {"rules": [_rule(match={"host": [f"*.{at}.org" for at in range(n)]})]})),
    "networks": (_policy, Grown(lambda n: {"rules": [_rule(match={"ip": ["10.0.0.0/8"] * n})]})),
    "reloads": (_reloaded, Grown(_versions)),
    "plans": (_policy, Grown(lambda n: {"rules": [_rule(limits={"default": "1/s", **_named(n, "2/s")})]})),
}
SIZES = {
    "json: fields": 2_000,
    "json: fields said twice": 2_000,
    "toml: parts of a key": 4_000,
    "yaml: a number by 60": 2_000,
}
SIZE = 250
"""Fields of the smaller policy, and more where only more of them show a square."""


def texts(reader: Reader) -> Iterator[Text]:
    """Every mark alone, and every two of them, after every sample and before what does not fit."""
    for mark, start, end in product(reader.marks, reader.samples, ("", "\0")):
        yield Text(start, mark, end)
    for pair in product(reader.marks, repeat=2):
        for start in reader.samples:
            yield Text(start, "".join(pair), "!")


def seconds(read: Read, text: Text | Grown, length: int) -> float:
    """Of this thread, by the processor: other processes do not count."""
    given = text.of(length)
    with suppress(HeadgateError, Unclear, ValueError), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        before = thread_time()
        try:
            read(given)
        finally:
            spent = thread_time() - before
    return spent


def is_linear(read: Read, text: Text | Grown, size: int) -> bool:
    """Whether 8 times the text takes about 8 times the time; measured again where it seems to take more."""
    short = seconds(read, text, size)
    for attempt in range(ATTEMPTS):  # another length each time: what was read before may be remembered
        if seconds(read, text, TIMES * (size + attempt)) <= TIMES * ALLOWED * short + FLOOR:
            return True
        short = max(short, seconds(read, text, size + attempt + 1))
    return False
