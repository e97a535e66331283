"""`headgate key`: one key of a policy's rules in the real store. Show what it has left, reset, ban or unban it."""

from __future__ import annotations

import argparse
import os
import re
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final
from urllib.parse import unquote

from headgate.cli.key_text import describe, instant
from headgate.cli.policy import load_policy
from headgate.cli.request_options import add_request, view_of
from headgate.clock import SECOND
from headgate.errors import InvalidCall, StoreError
from headgate.policy import Policy
from headgate.policy.command import Bans, FoundKeys, blocks_of, checked_time, found_keys
from headgate.steps import run
from headgate.stores import Store, bind_placed, open_store
from headgate.stores.command import has_table, split, survey
from headgate.wording import listed, log_of, printable, without_password

LONGEST_KEY: Final = 200
OF_EVERYBODY: Final = re.compile(r"everyone|method|path|route|constant .*")
"""Parts of a key that no option names a client by."""
_NUMBER: Final = re.compile(r"\d{1,9}(?:\.\d{1,3})?", re.ASCII)

log = log_of("headgate.key")


def add_verbs(verbs: Any) -> None:  # noqa: ANN401 - argparse has no public name for it
    """Add `show`, `reset`, `ban` and `unban`, each with a policy, a store and a request."""
    about = "look at one key of a policy's rules in the store, reset it, ban it or unban it"
    parser = verbs.add_parser("key", help=about, description=f"{about.capitalize()}.")
    actions = parser.add_subparsers(title="verbs", metavar="VERB", required=True)
    each: tuple[tuple[str, Callable[[argparse.Namespace], str], str], ...] = (
        ("show", show, "what the key has left, until when it is blocked, what is in flight, the stamps of a log"),
        ("reset", reset, "forget the counts of the key, and end its block"),
        ("ban", ban, "refuse every request of the key for a time"),
        ("unban", unban, "end the ban of the key"),
    )
    for name, verb, says in each:
        action = actions.add_parser(name, help=says, description=f"{says[0].upper()}{says[1:]}.")
        action.add_argument("--policy", required=True, metavar="FILE")
        action.add_argument("--store", metavar="URL", help="shared:///dev/shm/api, redis://cache: the app's own store")
        action.add_argument("--rule", metavar="NAME", help="only this rule, whatever it matches")
        add_request(action, ip=None)
        if name == "reset":
            action.add_argument("--yes", action="store_true", help="do not ask back")
        if name == "ban":
            action.add_argument(
                "--for", required=True, dest="time", metavar="TIME", help="10m, 1h, 30 days; or seconds"
            )
        action.set_defaults(verb=verb)


def show(chosen: argparse.Namespace) -> str:
    """Return the state of each key, rule by rule."""
    policy, found = _find(chosen)
    with _opened(chosen, policy, found) as stores:
        lines = [line for each in found for line in _shown(each, policy.namespace, stores)]
    return "\n".join(lines) or "no rule matches the request"


def _shown(found: FoundKeys, namespace: str, stores: dict[str, Store]) -> Iterator[str]:
    rule = found.rule
    if not found.keys:
        yield f"rule {rule.name}: no key, as {printable(found.why)}"
        return
    plan = f"; limits of the plan {printable(_plan(found))}" if len(rule.plans or ()) > 1 else ""
    for key in found.keys:
        yield f"rule {rule.name}: key {printable(key, LONGEST_KEY)}{plan}"
        store = stores[rule.store]
        for limit in found.limits:
            if has_table(store, namespace, limit):
                bound = bind_placed(store.clock, namespace, (limit,), partial(store.bind, namespace))
                yield from describe(bound, key)
            else:
                yield f"  {limit}: not used yet, {limit.burst} of {limit.burst} left"
        _, until = run(Bans(store, namespace, awaited=False).look(rule.name, key))
        if until:
            yield f"  banned until {instant(until)}"


def _plan(found: FoundKeys) -> str:
    return next(plan for plan, limits in (found.rule.plans or {}).items() if limits == found.limits)


def reset(chosen: argparse.Namespace) -> str:
    """Forget the counts of each key, after a question on a terminal."""
    policy, found = _find_to_change(chosen)
    named = _named(found)
    if not chosen.yes:
        _ask(named)
    with _opened(chosen, policy, found) as stores:
        for each in found:
            store = stores[each.rule.store]
            limits = [limit for limit in each.every_limit if has_table(store, policy.namespace, limit)]
            for key in each.keys:
                for limit in limits:
                    store.bind(policy.namespace, (limit,)).clear(key)
                if each.rule.blocks_all:
                    run(Bans(store, policy.namespace, awaited=False).unban(blocks_of(each.rule), key))
                _tell(chosen, each.rule.name, key, "reset")
    return "\n".join(f"{each}: reset" for each in named)


def ban(chosen: argparse.Namespace) -> str:
    """Ban each key for a time."""
    time_us = checked_time(float(chosen.time) if _NUMBER.fullmatch(chosen.time) else chosen.time)
    return _change(chosen, time_us, f"banned for {time_us / SECOND:g} s")


def unban(chosen: argparse.Namespace) -> str:
    """End the ban of each key."""
    return _change(chosen, 0, "unbanned")


def _change(chosen: argparse.Namespace, time_us: int, done: str) -> str:
    policy, found = _find_to_change(chosen)
    named = _named(found)
    with _opened(chosen, policy, found) as stores:
        for each in found:
            bans = Bans(stores[each.rule.store], policy.namespace, awaited=False)
            for key in each.keys:
                run(bans.ban(each.rule.name, key, time_us) if time_us else bans.unban(each.rule.name, key))
                _tell(chosen, each.rule.name, key, done)
    return "\n".join(f"{each}: {done}" for each in named)


def _named(found: list[FoundKeys]) -> list[str]:
    """Return the name of each key, or raise `InvalidCall` if there is none."""
    named = [f"rule {each.rule.name}: key {printable(key, LONGEST_KEY)}" for each in found for key in each.keys]
    if not named:
        raise InvalidCall("; ".join(f"rule {each.rule.name}: {each.why}" for each in found) or "no rule matches")
    return named


def _ask(named: list[str]) -> None:
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise InvalidCall("reset forgets counts and cannot be undone: without a terminal, write --yes")
    print("\n".join(named))
    try:
        answer = input("Forget these counts? [y/N] ")
    except EOFError:
        answer = ""
    if answer.strip().lower() not in ("y", "yes"):
        raise InvalidCall("nothing was reset")


def _tell(chosen: argparse.Namespace, rule: str, key: str, done: str) -> None:
    """Log who has changed which key, and when."""
    when = f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC"
    where = without_password(chosen.store or "its own store")
    log.warning(
        "%s: %s on %s %s the key %s of rule %s (policy %s, store %s)",
        when, _who(), printable(socket.gethostname()), done, printable(key, LONGEST_KEY), rule,
        printable(chosen.policy), printable(where),
    )  # fmt: skip


def _who() -> str:
    """Return the user of this process; behind sudo, also the one who called it."""
    import getpass

    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a user without a name
        user = f"uid {os.getuid()}" if hasattr(os, "getuid") else "an unknown user"
    behind = os.environ.get("SUDO_USER")
    return printable(f"{user} (sudo by {behind})" if behind else user)


def _find(chosen: argparse.Namespace) -> tuple[Policy, list[FoundKeys]]:
    """Return the policy, and the keys of the request; of every rule, if neither a path nor a method was given."""
    policy = load_policy(chosen.policy)
    every = not (chosen.path or chosen.method)
    return policy, found_keys(policy, view_of(chosen), chosen.rule, every, chosen.ip is not None)


def _find_to_change(chosen: argparse.Namespace) -> tuple[Policy, list[FoundKeys]]:
    """Like `_find`; a key that all clients share is found only if its rule was named."""
    policy, found = _find(chosen)
    return policy, [each if chosen.rule else _of_a_client(each) for each in found]


def _of_a_client(found: FoundKeys) -> FoundKeys:
    name = found.rule.name
    if not found.keys or not all(map(OF_EVERYBODY.fullmatch, found.rule.parts)):
        return found
    return FoundKeys(found.rule, (), f"it counts all clients together; if that is meant, write --rule {name}")


@contextmanager
def _opened(chosen: argparse.Namespace, policy: Policy, found: list[FoundKeys]) -> Iterator[dict[str, Store]]:
    """Open the stores of these rules; a store that does not exist is not made."""
    urls = {"": chosen.store, **policy.stores}
    opened: dict[str, Store] = {}
    try:
        for name in dict.fromkeys(each.rule.store for each in found if each.keys):
            opened[name] = _open(urls[name], [each.rule.name for each in found if each.rule.store == name])
        yield opened
    finally:
        for store in opened.values():
            if hasattr(store, "close"):
                store.close()


def _open(url: str | None, rules: list[str]) -> Store:
    if url is None:
        raise InvalidCall(f"write --store URL, the store of the app, for {listed(rules)}")
    parts = split(url)
    if parts.scheme == "memory":
        raise InvalidCall("a store in memory can be seen in its own process only: write limits.peek(rule, key) there")
    if parts.scheme == "shared":
        from headgate.cli.shared import read_path

        survey(read_path(url))
    if parts.scheme == "sqlite" and not os.path.exists(unquote(parts.path)):
        raise StoreError(f"there is no store {printable(without_password(url))}")
    return open_store(url, None)
