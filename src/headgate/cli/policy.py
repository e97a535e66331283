"""`headgate policy`: check a policy file, or ask it about a request."""

from __future__ import annotations

import argparse
import json
import warnings
from typing import Any

from headgate.errors import InvalidCall
from headgate.limit import LimitWarning
from headgate.policy import Policy, Proxies, RequestView
from headgate.policy.compiled import CompiledPolicy
from headgate.policy.explain import by_lists, by_rules
from headgate.policy.invented import inventions
from headgate.policy.outcome import Outcome
from headgate.policy.source import Source, read_source
from headgate.policy.steps import run
from headgate.stores import MemoryStore


def add_verbs(verbs: Any) -> None:  # noqa: ANN401 - argparse has no public name for it
    """Add `check` and `explain`, each with a file, and `schema`."""
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
    about = "the JSON Schema of policies, for editors"
    actions.add_parser("schema", help=about, description=f"Print {about}.").set_defaults(verb=print_schema)


def print_schema(chosen: argparse.Namespace) -> str:
    """For editors."""
    from headgate.policy.schema import schema  # which nothing else needs

    return json.dumps(schema(), indent=2)


def check(chosen: argparse.Namespace) -> str:
    """Return that the file has no mistakes, with warnings; or raise an error with every mistake."""
    source, policy, warned = _load(chosen.file)
    warned += inventions(source, policy)
    rules = "1 rule" if len(policy.rules) == 1 else f"{len(policy.rules)} rules"
    return "\n".join([f"{chosen.file}: {rules}, no mistakes", *(f"warning: {each}" for each in warned)])


def explain(chosen: argparse.Namespace) -> str:
    """Return what would happen to a request while nothing is spent yet. The last line is the verdict."""
    _, policy, _ = _load(chosen.file)
    view = _view(chosen)
    told = _explained(policy, view)
    head = f"{view.method} {view.path} from {view.client or 'an unknown client'}"
    return "\n".join([head + (f", plan {view.plan}" if view.plan else ""), *told])


def _load(file: str) -> tuple[Source, Policy, list[str]]:
    """Return the file as it was read, the policy, and the warnings."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", LimitWarning)
        source = read_source(file)
        policy = Policy(source)
    return source, policy, [str(each.message) for each in caught if each.category is LimitWarning]


def _explained(policy: Policy, view: RequestView) -> list[str]:
    listed = by_lists(policy, view)
    if listed is not None:
        return [listed]
    compiled = CompiledPolicy(policy, {name: MemoryStore() for name in ("", *policy.stores)}, awaited=False)
    told = by_rules(compiled, view)
    if not told:
        return ["allowed: no rule matches"]
    idle = [each.idle for each in told if each.idle]
    return [*(each.words for each in told), *_verdict(run(compiled.before(view)), idle)]


def _verdict(outcome: Outcome, idle: list[str]) -> list[str]:
    """Return what happens to the request, and by which rule."""
    if outcome.decision is not None and outcome.rule is not None:
        said = "allowed" if outcome.kind == "pass" else "refused"
        left = f"{outcome.decision.remaining} of {outcome.decision.limit} left after it"
        binding = f"binding: rule {outcome.rule.name}, {outcome.decision.binding}"
        return [binding, f"with nothing spent yet: {said}, {left}"]
    if outcome.kind == "pass":
        return [f"allowed: {'; '.join(idle)}"]
    said = f"refused ({outcome.status})" + (f" by rule {outcome.rule.name}" if outcome.rule else "")
    return [f"{said}: {outcome.detail}" if outcome.detail else said]


def _view(chosen: argparse.Namespace) -> RequestView:
    headers: dict[str, list[str]] = {}
    for line in chosen.header:
        name, colon, value = line.partition(":")
        if not colon or not name.strip():
            raise InvalidCall(f"--header is NAME:VALUE; got {line!r}")
        headers.setdefault(name.strip().lower(), []).append(value.strip())
    proxies = Proxies(chosen.trusted_proxy)
    path, _, query = chosen.path.partition("?")
    if chosen.host:
        headers["host"] = [chosen.host]
    view = RequestView(chosen.method.upper(), path, headers, chosen.ip, proxies)
    view.query_string = chosen.query or query
    view.user, view.plan = chosen.user, chosen.plan
    return view
