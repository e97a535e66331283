"""`headgate sql`: make the table of a store in a database."""

from __future__ import annotations

import logging
from typing import Any

from headgate.stores.command import make_table
from headgate.wording import log_of


def add_verbs(verbs: Any) -> None:  # noqa: ANN401 - argparse has no public name for it
    """Add `init`, with a URL."""
    about = "make the table of a store in PostgreSQL or SQLite"
    parser = verbs.add_parser("sql", help=about, description=f"{about.capitalize()}.")
    actions = parser.add_subparsers(title="verbs", metavar="VERB", required=True)
    says = "make the table, the index and the view, if they are not there"
    init = actions.add_parser("init", help=says, description=f"{says[0].upper()}{says[1:]}.")
    init.add_argument("url", metavar="URL", help="postgresql://user@db/app, or sqlite:///var/lib/app/limits.db")
    init.set_defaults(verb=lambda chosen: _init(chosen.url))


def _init(url: str) -> str:
    # psycopg's pool logs each failure to connect, and Python prints such lines if nobody handles them.
    log_of("psycopg.pool").logger.addHandler(logging.NullHandler())
    return f"the table is in {make_table(url)}"
