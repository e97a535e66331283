"""The names that are used of psycopg 3 and its pool."""

from __future__ import annotations

from headgate.errors import StoreError
from headgate.wording import missing

try:
    import psycopg
    from psycopg import pq
    from psycopg.conninfo import conninfo_to_dict
    from psycopg_pool import AsyncConnectionPool, ConnectionPool
except ImportError as reason:
    raise StoreError(missing("a PostgreSQL store", "psycopg[binary,pool]", "postgres")) from reason

__all__ = ["AsyncConnectionPool", "ConnectionPool", "conninfo_to_dict", "pq", "psycopg"]
