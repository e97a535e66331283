"""The admin port: `/metrics`, `/counts` and `/top`, summed over the workers.

A thread of the supervisor answers, so that no decision waits for it. Workers publish their counts once a second.
"""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final

from headgate.edge.building import read_tokens
from headgate.edge.connections import Connections
from headgate.edge.http import HANDSHAKE, tls_of
from headgate.edge.listening import BACKLOG, Place
from headgate.edge.settings import Settings
from headgate.errors import InvalidCall
from headgate.observe import Snapshot
from headgate.observe.asgi import AsgiPages, May, bearing, from_loopback
from headgate.observe.publish import read

EVERY: Final = 1.0
PATIENCE: Final = 5.0
"""Seconds that the thread gets to end."""


class AdminPort:
    """Answers on a socket until it is closed."""

    def __init__(
        self, settings: Settings, place: Place, listener: socket.socket, counts: Path, failures: Callable[[], int]
    ) -> None:
        self._counts = counts
        self._failures = failures
        """Returns the number of files that were not taken up: workers see the good ones only."""
        self._loop = asyncio.new_event_loop()
        self._ends = asyncio.Event()
        serving = self._serve(AsgiPages(self._seen, _may(settings, place)), listener, settings)
        self._thread = threading.Thread(
            target=self._loop.run_until_complete, args=(serving,), name="headgate-admin", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """End."""
        self._loop.call_soon_threadsafe(self._ends.set)
        self._thread.join(PATIENCE)
        if not self._thread.is_alive():
            self._loop.close()

    def _seen(self, keys: int) -> Snapshot:
        seen = read(self._counts, keys)
        seen["policy"]["reload_failures"] += self._failures()
        return seen

    async def _serve(self, app: AsgiPages, listener: socket.socket, settings: Settings) -> None:
        loop, tls, connections = asyncio.get_running_loop(), tls_of(settings), Connections(app)
        server = await loop.create_server(
            connections.protocol,
            sock=listener,
            ssl=tls,
            backlog=BACKLOG,
            ssl_handshake_timeout=None if tls is None else HANDSHAKE,
        )
        while not self._ends.is_set():
            connections.sweep(loop.time())
            try:
                await asyncio.wait_for(self._ends.wait(), EVERY)
            except TimeoutError:
                continue
        server.close()
        connections.shut_down()
        await asyncio.sleep(0)  # connections are closed in the next turn of the loop


def _may(settings: Settings, place: Place) -> May:
    """Return which requests are answered: those with a token; without one, those from this machine, or with --open all.

    A file of tokens that cannot be read any more admits no request.
    """
    file = settings.token_file
    if file is not None:
        return bearing(lambda: _tokens(file))
    return (lambda peer, authorization: True) if settings.open or place.path else from_loopback


def _tokens(file: str) -> tuple[bytes, ...]:
    try:
        return read_tokens(file)
    except InvalidCall:
        return ()
