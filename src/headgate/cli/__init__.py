"""The `headgate` command: each verb is a function that returns the text to print."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from headgate.cli import advise, demo, key, overload, playground, policy, race, replay, serve, shared, sql, top
from headgate.errors import HeadgateError, InvalidPolicy
from headgate.version import __version__

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one verb; the exit code is 0, 1 if the verb failed, or 2 if the command line is wrong."""
    chosen = _parser().parse_args(arguments)
    try:
        return _print(chosen.verb(chosen))
    except InvalidPolicy as mistakes:  # each line begins with the name of the file
        print(mistakes, file=sys.stderr)
    except HeadgateError as error:
        print(f"headgate: {error}", file=sys.stderr)
    return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="headgate", description="Rate limits: algorithms, stores, policies.")
    parser.add_argument("--version", action="version", version=f"headgate {__version__}")
    verbs = parser.add_subparsers(title="verbs", metavar="VERB", required=True)
    about = "the same requests through every algorithm, side by side"
    show = verbs.add_parser("demo", help=about, description=f"Show {about}.")
    show.set_defaults(verb=lambda _: demo.demo(coloured=_wants_colour()))
    shared.add_verbs(verbs)
    sql.add_verbs(verbs)
    policy.add_verbs(verbs)
    key.add_verbs(verbs)
    overload.add_verbs(verbs)
    replay.add_verbs(verbs)
    playground.add_verbs(verbs)
    advise.add_verbs(verbs)
    race.add_verbs(verbs)
    serve.add_verbs(verbs)
    top.add_verbs(verbs)
    return parser


def _wants_colour() -> bool:
    """Whether to print colours: on a terminal, unless NO_COLOR is set."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR")


def _print(text: str) -> int:
    try:
        print(text, flush=True)
    except BrokenPipeError:
        # The reader, `head` for instance, has closed the pipe; Python would raise again when it closes stdout.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0
