"""`headgate playground`: a page that shows limits at work."""

from __future__ import annotations

import argparse
from typing import Any


def add_verbs(verbs: Any) -> None:  # noqa: ANN401 - argparse has no public name for it
    """Add the verb to the parser."""
    about = "a page that shows the same requests in six algorithms, side by side"
    verb = verbs.add_parser("playground", help=about, description=f"Serve {about}, on this machine only.")
    verb.add_argument("--port", type=int, help="the port, or the next one that is free (8642)")
    verb.add_argument("--no-open", action="store_true", help="do not open a browser")
    verb.add_argument("--log", metavar="FILE", help="a log whose busiest clients the page can replay")
    verb.set_defaults(verb=serve)


def serve(chosen: argparse.Namespace) -> str:
    """Serve until Ctrl-C; then there is nothing more to print."""
    from headgate.playground import playground

    given = {} if chosen.port is None else {"port": chosen.port}
    playground(**given, opens=not chosen.no_open, log=chosen.log, say=lambda text: print(text, flush=True))
    return ""
