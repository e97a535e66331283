"""The `headgate` command: a verb is one function that returns what to print."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from headgate._version import __version__
from headgate.cli import demo, policy, shared
from headgate.errors import InvalidCall, InvalidPolicy, StoreError

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one verb; the exit code is 0, 1 for what cannot be done, or 2 for a command that cannot be read."""
    chosen = _parser().parse_args(arguments)
    try:
        return _print(chosen.verb(chosen))
    except (InvalidCall, StoreError) as error:
        print(f"headgate: {error}", file=sys.stderr)
        return 1
    except InvalidPolicy as mistakes:
        print(mistakes, file=sys.stderr)
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="headgate", description="Allow or not, and when to come back.")
    parser.add_argument("--version", action="version", version=f"headgate {__version__}")
    verbs = parser.add_subparsers(title="verbs", metavar="VERB", required=True)
    about = "the same requests through every algorithm, side by side"
    show = verbs.add_parser("demo", help=about, description=f"Show {about}.")
    show.set_defaults(verb=lambda _: demo.demo(coloured=_wants_colour()))
    shared.add_verbs(verbs)
    policy.add_verbs(verbs)
    return parser


def _wants_colour() -> bool:
    """Colours are for terminals, and for those who did not set NO_COLOR."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR")


def _print(text: str) -> int:
    try:
        print(text, flush=True)
    except BrokenPipeError:
        # The reader, `head` for instance, has seen enough; Python would complain once more when it closes stdout.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0
