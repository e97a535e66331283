"""Policies at an edge, over limits in a database: the suite of every edge, on both stores."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headgate.stores import Store
from headgate.stores.sql.sqlite import SqliteStore
from headgate.testing import ManualClock
from headgate.testing.edges import App
from tests.support.adapters.bare import AsgiSuite, WsgiSuite
from tests.support.postgres import psycopg, running

pytestmark = pytest.mark.engineless


class OnSqlite:
    """Each site has a file of its own."""

    @pytest.fixture(autouse=True)
    def _files(self, folder: Path) -> Iterator[None]:
        self.folder, self.opened = folder, contextlib.ExitStack()
        with self.opened:
            yield

    def store(self, clock: ManualClock) -> Store:
        """A busy machine is given time."""
        name = len(list(self.folder.iterdir()))
        store = SqliteStore(f"sqlite://{self.folder}/{name}.db", deadline=20, clock=clock)
        self.opened.enter_context(contextlib.closing(store))
        return store


class OnPostgres:
    """Sites take their turns in the table of one server."""

    @pytest.fixture(autouse=True)
    def _server(self) -> Iterator[None]:
        psycopg()
        self.server, self.opened = running(), contextlib.ExitStack()
        with self.opened:
            yield

    def store(self, clock: ManualClock) -> Store:
        """The rows of the site before are gone."""
        from headgate.stores.sql.postgres import PostgresStore

        store = PostgresStore(self.server.url(), clock=clock)
        self.opened.enter_context(contextlib.closing(store))
        store.make_table()
        self.server.execute("DELETE FROM headgate_states WHERE namespace <> ''")
        return store


class TestWsgiOnSqlite(OnSqlite, WsgiSuite):
    """Threads over a file."""


@pytest.mark.soak
class TestAsgiOnSqlite(OnSqlite, AsgiSuite):
    """An event loop over a file, in one thread."""


@pytest.mark.soak
class TestWsgiOnPostgres(OnPostgres, WsgiSuite):
    """Threads over a server."""


@pytest.mark.soak
class TestAsgiOnPostgres(OnPostgres, AsgiSuite):
    """An event loop over a server; a ready store is closed by its owner, in the loop that has used it."""

    @contextlib.contextmanager
    def serve(self, app: App) -> Iterator[Any]:
        with super().serve(app) as site:
            yield site
            if hasattr(app.options["store"], "aclose"):
                site.run(app.options["store"].aclose())
