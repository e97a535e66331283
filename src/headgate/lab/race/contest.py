"""A race: each snippet and our own limiter, many threads on one key of a real server."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from headgate.lab.race.crowd import EACH, THREADS, Died, admitted_at_once, dying
from headgate.lab.race.servers import connected
from headgate.lab.race.snippets import COPIED, OURS, Snippet
from headgate.limiter import Limiter
from headgate.wording import columns

DEADLINE: Final = 10.0
MOST_COMMANDS: Final = 10
"""No snippet has more commands than this."""
NO_TTL: Final = -1
"""The answer of TTL for a key that never expires."""


@dataclass(frozen=True)
class Contestant:
    """The result of one snippet, or of our limiter."""

    name: str
    allowed: int
    admitted: int
    lasting: int
    """Keys without a time to live, after the contest and after a caller died behind each of its commands."""
    remark: str


@dataclass(frozen=True)
class Race:
    """The results. `str` is the text that `headgate race` prints."""

    server: str
    threads: int
    requests: int
    """In each contest."""
    contestants: tuple[Contestant, ...]

    def __str__(self) -> str:
        rows = [("", "allowed", "admitted", "", "keys without TTL")]
        for each in self.contestants:
            times = f"{each.admitted / each.allowed:.1f}x" if each.admitted > each.allowed else ""
            rows.append((each.name, str(each.allowed), str(each.admitted), times, str(each.lasting)))
        title = f"{self.threads} threads send {self.requests:,} requests at once on one key of {self.server}"
        remarks = [line for each in self.contestants for line in (each.name, f"  {each.remark}")]
        return "\n".join([title, "", *columns(rows), "", *remarks])


def run_race(url: str | None = None) -> Race:
    """Hold the race on the server of a URL, or on one that is started for it.

    Its keys have names that nobody else uses, and are deleted in the end.
    """
    with connected(url) as (client, server):
        prefix = f"headgate-race-{secrets.token_hex(8)}"
        results = [_copied(client, prefix, snippet) for snippet in COPIED]
        results += [_ours(client, prefix, name, limit) for name, limit in OURS]
    return Race(server, THREADS, THREADS * EACH, tuple(results))


def _copied(client: Any, prefix: str, snippet: Snippet) -> Contestant:  # noqa: ANN401 - a client of redis-py
    key = f"{prefix}:{snippet.admit.__name__}"
    keys = [key, *(f"{key}:{number}" for number in range(1, MOST_COMMANDS + 1))]
    try:
        admitted = admitted_at_once(client.ping, lambda: snippet.admit(client, key, snippet.limit))
        members = client.zcard(key) if client.type(key) == b"zset" else 0
        _let_die(client, snippet, keys[1:])
        lasting = _lasting(client, keys)
    finally:
        client.delete(*keys)
    return Contestant(snippet.name, snippet.limit, admitted, lasting, snippet.fault.format(members=members))


def _let_die(client: Any, snippet: Snippet, keys: Sequence[str]) -> None:  # noqa: ANN401
    """Let a caller die behind its first command, another one behind its second, and so on, each on a new key."""
    for after, key in enumerate(keys, start=1):
        try:
            snippet.admit(dying(client, after), key, snippet.limit)
        except Died:
            continue
        return


def _lasting(client: Any, keys: Sequence[str | bytes]) -> int:  # noqa: ANN401
    return sum(client.ttl(key) == NO_TTL for key in keys)


def _ours(client: Any, prefix: str, name: str, limit: str) -> Contestant:  # noqa: ANN401
    from headgate.stores import RedisStore
    from headgate.stores.redis.names import Names

    store = RedisStore(client, deadline=DEADLINE, remember_refusals=0)
    limiter = Limiter(limit, store=store, namespace=prefix, on_error="raise")
    names = Names(prefix, b"")
    key = names.subject("key") + names.suffix(limiter.limits[0])
    try:
        admitted = admitted_at_once(lambda: limiter.peek("key"), lambda: limiter.hit("key").allowed)
        lasting = _lasting(client, [key])
    finally:
        client.delete(key)
        store.close()
    remark = "one script decides and writes, with the server's clock; the key expires when no use is left in it"
    return Contestant(name, limiter.limits[0].amount, admitted, lasting, remark)
