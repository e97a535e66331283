"""The table of a store, made ahead of the first decision: for a role that may create tables."""

from __future__ import annotations

from headgate.errors import InvalidCall
from headgate.stores.url import split
from headgate.wording import shown


def make_table(url: str) -> str:
    """Make the table of a store, if it is not there; return the name of its database."""
    scheme = split(url).scheme
    if scheme == "sqlite":
        from headgate.stores.sql.sqlite import SqliteStore

        store: SqliteStore | PostgresStore = SqliteStore(url)
    elif scheme in ("postgresql", "postgres"):
        from headgate.stores.sql.postgres import PostgresStore  # an extra: psycopg may not be installed

        store = PostgresStore(url)
    else:
        raise InvalidCall(f"{shown(scheme)} URLs have no table: write postgresql://db/app or sqlite:///var/limits.db")
    try:
        return store.make_table()
    finally:
        store.close()
