"""`headgate replay` and `headgate simulate`: requests through limits or a policy, in virtual time."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headgate.cli.log_options import FORMATS, add_log_options, end_progress, opened, progress
from headgate.errors import InvalidCall

if TYPE_CHECKING:
    from headgate.lab import About, Comparison, PolicyReplay

MEASURES = ("same", "own", "offered")


def add_verbs(verbs: Any) -> None:  # noqa: ANN401 - argparse has no public name for it
    """Add both verbs to the parser."""
    about = "the requests of a log through limits or a policy, in virtual time"
    verb = verbs.add_parser("replay", help=about, description=f"Send {about}.", epilog=FORMATS)
    verb.add_argument("file", nargs="+", help="one log or several, which are one log; - is standard input")
    _add_outputs(verb)
    add_log_options(verb)
    verb.add_argument("--policy", metavar="FILE", help="a policy in place of limits: what each rule would have done")
    verb.add_argument("--against", metavar="FILE", help="the policy before it: which clients notice the change")
    verb.set_defaults(verb=replay)
    about = "made traffic through limits, in virtual time"
    verb = verbs.add_parser("simulate", help=about, description=f"Send {about}.")
    verb.add_argument("--traffic", metavar="KIND", help="the kind of traffic; --list shows all of them")
    verb.add_argument("--list", action="store_true", help="list the kinds of traffic")
    _add_outputs(verb)
    verb.add_argument("--for", dest="length", default="10m", metavar="TIME", help="how long requests come (10m)")
    verb.add_argument("--clients", type=int, default=1, help="the number of clients (1)")
    verb.add_argument("--rate", type=float, help="requests a second of all clients; without it, exactly their limits")
    verb.add_argument("--seed", type=int, default=0, help="the same seed makes the same traffic (0)")
    verb.set_defaults(verb=simulate)


def _add_outputs(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("--limit", action="append", default=[], help="as in 60/minute; may be given several times")
    verb.add_argument("--wrong", choices=MEASURES, default="same", help="the measure of wrong answers to show (same)")
    verb.add_argument("--json", metavar="FILE", help="write every figure to a file")
    verb.add_argument("--html", metavar="FILE", help="write a report with plots to one file, which needs no network")


def replay(chosen: argparse.Namespace) -> str:
    """Return the text that `headgate replay` prints."""
    from headgate.lab import replay, replay_policy

    if bool(chosen.limit) == bool(chosen.policy):
        raise InvalidCall("give --limit, as in --limit 60/minute, or --policy FILE")
    if chosen.against and not chosen.policy:
        raise InvalidCall("--against compares with the policy before: give the new one with --policy")
    _check_outputs(chosen, chosen.file)
    try:
        if chosen.policy:
            log = opened(chosen, chosen.file, ("method", "path", "status"))
            return _told(replay_policy(log, chosen.policy, chosen.against, progress=progress), chosen)
        log = opened(chosen, chosen.file)
        return _told(replay(log, *chosen.limit, progress=progress), chosen)
    finally:
        end_progress()


def simulate(chosen: argparse.Namespace) -> str:
    """Return the text that `headgate simulate` prints."""
    from headgate.lab import TRAFFIC, simulate

    if chosen.list:
        return "\n".join(f"{name:12}{kind.about}" for name, kind in TRAFFIC.items())
    if not chosen.traffic or not chosen.limit:
        raise InvalidCall("give --traffic and --limit, as in --traffic seam --limit 100/minute; --list shows the kinds")
    _check_outputs(chosen, [])
    try:
        result = simulate(
            chosen.traffic, *chosen.limit, length=chosen.length, clients=chosen.clients, rate=chosen.rate,
            seed=chosen.seed, progress=progress,
        )  # fmt: skip
    finally:
        end_progress()
    return _told(result, chosen)


def _told(result: Comparison | PolicyReplay, chosen: argparse.Namespace) -> str:
    """Write the files that were asked for; return the text."""
    from headgate.lab import Comparison, html, plain

    written = []
    if chosen.json:
        written.append(_write(chosen.json, json.dumps(plain(result), indent=1)))
    if chosen.html:
        written.append(_write(chosen.html, html(result, _about(chosen))))
    text = result.table(chosen.wrong) if isinstance(result, Comparison) else str(result)
    return "\n".join([text, *written])


def _check_outputs(chosen: argparse.Namespace, inputs: list[str]) -> None:
    """Refuse files that cannot be written before a long log is read, and files that are the log itself."""
    for file in filter(None, (chosen.json, chosen.html)):
        if file == "-":
            raise InvalidCall("- is standard input: name a file to write, or /dev/stdout")
        if not Path(file).parent.is_dir():
            raise InvalidCall(f"{file} cannot be written: No such file or directory")
        if Path(file).exists() and any(Path(each).exists() and Path(file).samefile(each) for each in inputs):
            raise InvalidCall(f"{file} is the log: name another file to write")


def _write(file: str, text: str) -> str:
    try:
        Path(file).write_text(text, encoding="utf-8")
    except OSError as reason:
        raise InvalidCall(f"{file} cannot be written: {reason.strerror}") from None
    return f"wrote {file}"


def _about(chosen: argparse.Namespace) -> About:
    """Return how the result came about; the command as the user has written it."""
    import shlex
    import sys
    from datetime import UTC, datetime

    from headgate.lab import About, versions

    command = shlex.join(["headgate", *sys.argv[1:]])
    made = f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC"
    return About(command, getattr(chosen, "seed", None), made, versions())
