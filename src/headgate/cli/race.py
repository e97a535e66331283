"""`headgate race`: the snippets that everybody copies, against a real server."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace, _SubParsersAction


def add_verbs(verbs: _SubParsersAction[ArgumentParser]) -> None:
    """Add the verb to the parser."""
    about = "limiters that everybody copies, and ours, under 40 threads on a real server"
    verb = verbs.add_parser("race", help=about, description=f"Race {about}.")
    verb.add_argument("--store", metavar="URL", help="redis://HOST, or another; without it, a server is started")
    verb.set_defaults(verb=race)


def race(arguments: Namespace) -> str:
    """Return the text that `headgate race` prints."""
    from headgate.lab import run_race

    return str(run_race(arguments.store))
