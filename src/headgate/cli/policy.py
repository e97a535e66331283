"""`headgate policy`: check a policy file, or ask it about a request."""

from __future__ import annotations

import argparse
import json
import warnings
from typing import Any

from headgate.cli.request_options import add_request, view_of
from headgate.limit import LimitWarning
from headgate.policy import Policy, command


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
    add_request(asks)
    asks.set_defaults(verb=explain)
    about = "the JSON Schema of policies, for editors"
    actions.add_parser("schema", help=about, description=f"Print {about}.").set_defaults(verb=print_schema)


def print_schema(chosen: argparse.Namespace) -> str:
    """For editors."""
    return json.dumps(command.schema(), indent=2)


def check(chosen: argparse.Namespace) -> str:
    """Return that the file has no mistakes, with warnings; or raise an error with every mistake."""
    source, policy, warned = _load(chosen.file)
    warned += command.inventions(source, policy)
    rules = "1 rule" if len(policy.rules) == 1 else f"{len(policy.rules)} rules"
    rules += " and load shedding" if policy.shed is not None else ""
    return "\n".join([f"{chosen.file}: {rules}, no mistakes", *(f"warning: {each}" for each in warned)])


def explain(chosen: argparse.Namespace) -> str:
    """Return what would happen to a request while nothing is spent yet. The last line is the verdict."""
    _, policy, _ = _load(chosen.file)
    view = view_of(chosen)
    effects = command.explain(policy, view)
    head = f"{view.method} {view.path} from {view.client or 'an unknown client'}"
    return "\n".join([head + (f", plan {view.plan}" if view.plan else ""), *effects])


def load_policy(file: str) -> Policy:
    """Return the policy in a file; its warnings are those of `check`."""
    return _load(file)[1]


def _load(file: str) -> tuple[command.Source, Policy, list[str]]:
    """Return the file as it was read, the policy, and the warnings."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", LimitWarning)
        source = command.read_source(file)
        policy = Policy(source)
    return source, policy, [str(each.message) for each in caught if each.category is LimitWarning]
