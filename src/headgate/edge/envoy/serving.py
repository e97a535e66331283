"""A worker for gRPC: a process with a port of its own, on the store that all workers share."""

from __future__ import annotations

import asyncio
import signal
import socket
from pathlib import Path
from typing import Final

from headgate.edge.building import read_tokens
from headgate.edge.envoy.grpc import Calls
from headgate.edge.envoy.http2 import Connection
from headgate.edge.envoy.limits import EnvoyLimits
from headgate.edge.envoy_counts import EnvoyCounts
from headgate.edge.http import HANDSHAKE, loop_factory, tls_of
from headgate.edge.listening import BACKLOG
from headgate.edge.messages import log_to_stderr
from headgate.edge.settings import Settings
from headgate.edge.worker import Ready
from headgate.observe.publish import Watched
from headgate.stores import AsyncStore, open_store

EVERY: Final = 1.0
"""Seconds between two looks at the files."""
FINISH: Final = 5.0
"""Seconds that peers get to finish their calls after SIGTERM."""


def run_grpc(settings: Settings, store: str, listener: socket.socket, number: int, ready: Ready) -> None:
    """Serve gRPC in this process until SIGTERM."""
    log_to_stderr(first=number == 1)
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(_serve(settings, store, listener, ready))


async def _serve(settings: Settings, store: str, listener: socket.socket, ready: Ready) -> None:
    loop = asyncio.get_running_loop()
    ends = asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, ends.set)
    opened = open_store(store, None)
    limits = EnvoyLimits(Path(settings.envoy or ""), opened, algorithm=settings.envoy_algorithm)
    calls = Calls(limits, opened, read_tokens(settings.token_file))
    tls = tls_of(settings)
    if tls is not None:
        tls.set_alpn_protocols(["h2"])
    connections: set[Connection] = set()
    server = await loop.create_server(
        lambda: Connection(calls, connections),
        sock=listener,
        ssl=tls,
        backlog=BACKLOG,
        ssl_handshake_timeout=None if tls is None else HANDSHAKE,
    )
    watched = None if settings.counts is None else Watched([EnvoyCounts(limits, opened)], settings.counts)
    ready()
    while not ends.is_set():
        limits.look()
        try:
            await asyncio.wait_for(ends.wait(), EVERY)
        except TimeoutError:
            continue
    calls.drains = True
    server.close()
    await _finish(connections)
    if watched is not None:
        watched.close()
    if isinstance(opened, AsyncStore):
        await opened.aclose()


async def _finish(connections: set[Connection]) -> None:
    """Let peers finish their calls and go elsewhere."""
    for each in list(connections):
        each.drain()
    until = asyncio.get_running_loop().time() + FINISH
    while connections and asyncio.get_running_loop().time() < until:
        await asyncio.sleep(0.02)
    for each in list(connections):
        each.abort()
