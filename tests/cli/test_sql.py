"""`headgate sql`: tables in databases."""

from __future__ import annotations

import sqlite3
import subprocess
import sys

import pytest

from tests.support.servers import free_port

pytestmark = pytest.mark.engineless


def test_init_makes_the_table_once(command, tmp_path):
    """The table, its index and its view are made; a second call leaves them as they are."""
    path = tmp_path / "limits.db"
    for _ in range(2):
        assert command("sql", "init", f"sqlite://{path}") == (0, f"the table is in {path}\n", "")
    with sqlite3.connect(path) as looker:
        names = looker.execute("SELECT name FROM sqlite_master WHERE name NOT LIKE 'sqlite_%' ORDER BY name").fetchall()
    looker.close()
    assert [name for (name,) in names] == ["headgate_states", "headgate_states_expires_at", "headgate_usage"]


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("redis://cache", "'redis' URLs have no table: write postgresql://db/app or sqlite:///var/limits.db"),
        ("postgresql://ann:secret@db", "the URL of a PostgreSQL store must name a database: write postgresql://db/app"),
    ],
)
def test_a_url_without_a_table_is_an_error(command, url, says):
    """One line on stderr says what to write, without a password."""
    pytest.importorskip("psycopg")
    assert command("sql", "init", url) == (1, "", f"headgate: {says}\n")


def test_a_server_that_is_away_is_told_in_one_line():
    """The error names the server and the reason, once: psycopg's own lines are not printed."""
    pytest.importorskip("psycopg_pool")
    where = f"127.0.0.1:{free_port()}/app"
    words = [sys.executable, "-m", "headgate", "sql", "init", f"postgresql://ann:secret@{where}"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
    assert done.stderr.startswith(f"headgate: {where}: cannot connect: ") and "secret" not in done.stderr
