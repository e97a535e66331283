"""`headgate policy`: check a policy file, or ask it about a request."""

from __future__ import annotations

import argparse
from typing import Any

from headgate.errors import InvalidCall, StoreError
from headgate.policy import Policy, Proxies, RequestView
from headgate.policy.judge import Judge, run
from headgate.stores import MemoryStore


def add_verbs(verbs: Any) -> None:  # noqa: ANN401 - argparse has no public name for it
    """`check` and `explain`, each with a file."""
    about = "check a policy file, or ask it about a request"
    parser = verbs.add_parser("policy", help=about, description=f"{about.capitalize()}.")
    actions = parser.add_subparsers(title="verbs", metavar="VERB", required=True)
    looks = actions.add_parser(
        "check", help="every mistake in a policy file, with its line", description="Check a file."
    )
    looks.add_argument("file", metavar="FILE")
    looks.set_defaults(verb=check)
    asks = actions.add_parser(
        "explain",
        help="which rules match a request, by which key, and which limit binds",
        description="Explain a file.",
    )
    asks.add_argument("file", metavar="FILE")
    asks.add_argument("--method", default="GET")
    asks.add_argument("--path", default="/")
    asks.add_argument("--ip", default="127.0.0.1", help="the peer's address")
    asks.add_argument("--host", default="")
    asks.add_argument("--header", action="append", default=[], metavar="NAME:VALUE")
    asks.add_argument("--query", default="")
    asks.add_argument("--user")
    asks.add_argument("--plan")
    asks.add_argument("--trusted-proxy", action="append", default=[], metavar="CIDR")
    asks.set_defaults(verb=explain)


def check(chosen: argparse.Namespace) -> str:
    """The file is right, or an error with every mistake."""
    policy = Policy.load(chosen.file)
    rules = "1 rule" if len(policy.rules) == 1 else f"{len(policy.rules)} rules"
    return f"{chosen.file}: {rules}, no mistakes"


def explain(chosen: argparse.Namespace) -> str:
    """What would happen to a request, with nothing spent yet."""
    policy = Policy.load(chosen.file)
    view = _view(chosen)
    if view.plan is None:
        view.plan = policy.plan_of(view)
    lines = [
        f"{view.method} {view.path} from {view.client or 'nobody known'}" + (f", plan {view.plan}" if view.plan else "")
    ]
    if policy.allow is not None and policy.allow(view):
        return "\n".join([*lines, "allowed: it is on the list of what is always allowed"])
    if policy.deny is not None and policy.deny(view):
        return "\n".join([*lines, "refused (403): it is on the list of what is always refused"])
    judge = Judge(policy, {name: MemoryStore() for name in ("", *policy.stores)}, awaited=False)
    for rule, params in policy.matching(view):
        key = judge._key(rule, view, params)
        limits = "; ".join(map(str, rule.limits_for(view))) or "no limit for this plan"
        told = key if isinstance(key, str) else "missing: the rule is skipped" if key is None else "missing: refused"
        lines.append(
            f"rule {rule.name}: counted by {told}; {limits}; cost {rule.cost.before(view)}; act {rule.act.kind}"
        )
    if len(lines) == 1:
        return "\n".join([*lines, "no rule matches: the app is called"])
    ruling = run(judge.before(view))
    if ruling.decision is not None and ruling.rule is not None:
        lines.append(f"binding: rule {ruling.rule.name}, {ruling.decision.binding}")
        lines.append(f"with nothing spent yet: {'allowed' if ruling.kind == 'pass' else 'refused'}, "
                     f"{ruling.decision.remaining} of {ruling.decision.limit} left after it")  # fmt: skip
    elif ruling.kind != "pass":
        lines.append(f"refused ({ruling.status})")
    return "\n".join(lines)


def _view(chosen: argparse.Namespace) -> RequestView:
    headers: dict[str, list[str]] = {}
    for line in chosen.header:
        name, colon, value = line.partition(":")
        if not colon or not name.strip():
            raise StoreError(f"--header is NAME:VALUE; got {line!r}")
        headers.setdefault(name.strip().lower(), []).append(value.strip())
    try:
        proxies = Proxies(chosen.trusted_proxy)
    except InvalidCall as reason:
        raise StoreError(str(reason)) from None
    path, _, query = chosen.path.partition("?")
    if chosen.host:
        headers["host"] = [chosen.host]
    view = RequestView(chosen.method.upper(), path, headers, chosen.ip, proxies)
    view.query_string = chosen.query or query
    view.user, view.plan = chosen.user, chosen.plan
    return view
