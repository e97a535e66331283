"""`headgate top`: what a running app decides, each second."""

from __future__ import annotations

import argparse
import os
import sys
from typing import Any

from headgate.errors import StoreError


def add_verbs(verbs: Any) -> None:  # noqa: ANN401 - argparse has no public name for it
    """Add `top`, with a source."""
    about = "watch what a running app decides: rules, refusals and the keys refused most"
    parser = verbs.add_parser("top", help=about, description=f"{about[0].upper()}{about[1:]}.")
    parser.add_argument(
        "source", metavar="SOURCE", help="http://127.0.0.1:6070, a directory of `publish`, or shared:///dev/shm/api"
    )
    parser.add_argument(
        "--token", default=os.environ.get("HEADGATE_TOKEN"), help="of the page; default: HEADGATE_TOKEN"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object a second")
    parser.set_defaults(verb=top)


def top(chosen: argparse.Namespace) -> str:
    """Watch on a terminal; otherwise return one table. With `--json`, print until the reader goes."""
    from headgate.top import once, open_source, stream, watch, write_all  # here: the other verbs need none of it

    source = open_source(chosen.source, chosen.token)
    if chosen.json:
        write_all(stream(source))
        return ""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        return once(source)
    try:
        watch(source)
    except KeyboardInterrupt:
        return ""
    except ModuleNotFoundError as missing:
        raise StoreError(str(missing)) from None
    return ""
