"""The table: the statements that make it in each database, and the number of its version.

The version is in the table itself, in a row whose namespace is empty; the namespace of a limiter is not.
"""

from __future__ import annotations

from typing import Final

VERSION: Final = 1
"""The number of the migration; a table of another number is an error."""
TABLE: Final = "headgate_states"
VIEW: Final = "headgate_usage"
COLUMNS: Final = "namespace, key, limit_name, state, blocked_until, remaining, burst, decided_at, expires_at"
READ_VERSION: Final = f"SELECT state FROM {TABLE} WHERE namespace = '' AND key = '' AND limit_name = 'version'"  # noqa: S608

POSTGRES: Final = f"""
CREATE TABLE IF NOT EXISTS {TABLE} (
    namespace text COLLATE "C" NOT NULL,
    key text COLLATE "C" NOT NULL,
    limit_name text COLLATE "C" NOT NULL,
    state text COLLATE "C" NOT NULL,
    blocked_until bigint NOT NULL,
    remaining bigint NOT NULL,
    burst bigint NOT NULL,
    decided_at timestamptz NOT NULL,
    expires_at timestamptz,
    PRIMARY KEY (namespace, key, limit_name)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05);
CREATE INDEX IF NOT EXISTS {TABLE}_expires_at ON {TABLE} (expires_at);
CREATE OR REPLACE VIEW {VIEW} AS
    SELECT namespace, key, limit_name,
        CASE WHEN expires_at <= now() THEN burst ELSE remaining END AS remaining,
        CASE WHEN expires_at <= now() THEN 0 ELSE greatest(0, burst - remaining) END AS used,
        burst, decided_at, expires_at,
        CASE WHEN blocked_until > 0 THEN to_timestamp(blocked_until / 1000000.0) END AS blocked_until
    FROM {TABLE} WHERE namespace <> '';
INSERT INTO {TABLE} ({COLUMNS}) VALUES ('', '', 'version', '{VERSION}', 0, 0, 0, now(), NULL) ON CONFLICT DO NOTHING;
"""  # noqa: S608 - names of this module

_NOW: Final = "CAST(strftime('%s', 'now') AS INTEGER) * 1000000"
_TIME: Final = "strftime('%Y-%m-%d %H:%M:%S', {0} / 1000000, 'unixepoch')"
SQLITE: Final = (
    f"""CREATE TABLE IF NOT EXISTS {TABLE} (
    namespace TEXT NOT NULL,
    key TEXT NOT NULL,
    limit_name TEXT NOT NULL,
    state TEXT NOT NULL,
    blocked_until INTEGER NOT NULL,
    remaining INTEGER NOT NULL,
    burst INTEGER NOT NULL,
    decided_at INTEGER NOT NULL,
    expires_at INTEGER,
    PRIMARY KEY (namespace, key, limit_name)
) WITHOUT ROWID""",
    f"CREATE INDEX IF NOT EXISTS {TABLE}_expires_at ON {TABLE} (expires_at)",
    f"""CREATE VIEW IF NOT EXISTS {VIEW} AS
    SELECT namespace, key, limit_name,
        CASE WHEN expires_at <= {_NOW} THEN burst ELSE remaining END AS remaining,
        CASE WHEN expires_at <= {_NOW} THEN 0 ELSE max(0, burst - remaining) END AS used,
        burst, {_TIME.format("decided_at")} AS decided_at, {_TIME.format("expires_at")} AS expires_at,
        CASE WHEN blocked_until > 0 THEN {_TIME.format("blocked_until")} END AS blocked_until
    FROM {TABLE} WHERE namespace <> ''""",  # noqa: S608 - names of this module
    f"INSERT OR IGNORE INTO {TABLE} ({COLUMNS}) VALUES ('', '', 'version', '{VERSION}', 0, 0, 0, {_NOW}, NULL)",  # noqa: S608
)


def wrong_version(name: str, found: str) -> str:
    """Return the error of a table that another version of Headgate has made."""
    newer = found.isdigit() and int(found) > VERSION
    todo = "install a newer Headgate" if newer else f"drop {TABLE} and {VIEW}, then run headgate sql init"
    return f"{TABLE} in {name} has version {found}, and this Headgate needs version {VERSION}: {todo}"
