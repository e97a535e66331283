"""The options of verbs that read a log."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Collection
from typing import TYPE_CHECKING, BinaryIO

from headgate.errors import InvalidCall
from headgate.wording import shown

if TYPE_CHECKING:
    from headgate.lab import Log

FORMATS = """\
Formats are recognised: common and combined (nginx, Apache, Traefik), JSON lines of Caddy, Envoy and
Traefik, AWS ALB, Envoy's text; any CSV, TSV or JSON lines with --fields. gz is read as it is."""


def add_log_options(verb: argparse.ArgumentParser) -> None:
    """Add the options by which a log is read."""
    verb.add_argument("--key", default="ip", metavar="ip|user|FIELD", help="the client of a request (ip)")
    verb.add_argument("--cost", metavar="FIELD", help="the field with the cost of a request; without it, 1")
    verb.add_argument("--fields", metavar="NAME=FIELD,...", help="as in time=ts,key=client,cost=tokens,path=uri")
    verb.add_argument("--stamps", choices=("spread", "as-is"), default="spread", help="whole seconds (spread)")


def opened(chosen: argparse.Namespace, files: list[str], wanted: Collection[str] = ("status",)) -> Log:
    """Return the log of these files; `-` is standard input. Without methods and paths it is read faster."""
    from headgate.lab import Log

    inputs: list[str | BinaryIO] = [sys.stdin.buffer if file == "-" else file for file in files]
    fields = _fields(chosen.fields)
    return Log(inputs, key=chosen.key, cost=chosen.cost, fields=fields, stamps=chosen.stamps, wanted=wanted)


def _fields(text: str | None) -> dict[str, str] | None:
    if text is None:
        return None
    pairs = [each.partition("=") for each in text.split(",")]
    for name, equals, field in pairs:
        if not (name.strip() and equals and field.strip()):
            raise InvalidCall(f"--fields is NAME=FIELD,..., as in time=ts,key=client; got {shown(text)}")
    return {name.strip(): field.strip() for name, _, field in pairs}


def progress(seen: int) -> None:
    """Tell a terminal how many requests were read."""
    if sys.stderr.isatty():
        print(f"\r\x1b[K{seen:,} requests", end="", file=sys.stderr, flush=True)


def end_progress() -> None:
    """Clear the line of the progress."""
    if sys.stderr.isatty():
        print("\r\x1b[K", end="", file=sys.stderr, flush=True)
