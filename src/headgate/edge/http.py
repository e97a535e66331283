"""A worker for HTTP: the app on a socket that all workers share."""

from __future__ import annotations

import asyncio
import gc
import signal
import socket
import ssl
from collections.abc import Callable
from typing import Final

from headgate.edge.app import App
from headgate.edge.building import build
from headgate.edge.connections import Connections
from headgate.edge.envoy_counts import EnvoyCounts
from headgate.edge.listening import BACKLOG
from headgate.edge.messages import log_to_stderr
from headgate.edge.settings import Settings
from headgate.edge.worker import Ready
from headgate.errors import InvalidCall
from headgate.observe.publish import Watched

LINGER: Final = 1.0
"""Seconds for which a worker that is told to end still takes connections, while /readyz says that it is not ready."""
FINISH: Final = 5.0
"""Seconds that connections get after that to send their last request."""
EVERY: Final = 1.0
HANDSHAKE: Final = 10.0
"""Seconds that a client gets for the handshake of TLS."""


def run_http(settings: Settings, store: str, listener: socket.socket, number: int, ready: Ready) -> None:
    """Serve HTTP in this process until SIGTERM."""
    log_to_stderr(first=number == 1)
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(serve(settings, store, listener, ready))


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Return uvloop's, where it is installed."""
    try:
        import uvloop
    except ModuleNotFoundError:
        return None
    return uvloop.new_event_loop


async def serve(settings: Settings, store: str, listener: socket.socket, ready: Ready) -> None:
    """Serve until SIGTERM, then finish."""
    loop = asyncio.get_running_loop()
    ends = asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, ends.set)
    app, runtime = build(settings, store)
    envoy = () if app.envoy is None else (EnvoyCounts(app.envoy),)
    watched = None if settings.counts is None else Watched([*envoy, runtime], settings.counts)
    connections = Connections(app)
    tls = tls_of(settings)
    handshake = None if tls is None else HANDSHAKE
    server = await loop.create_server(
        connections.protocol, sock=listener, ssl=tls, backlog=BACKLOG, ssl_handshake_timeout=handshake
    )
    gc.collect()
    gc.freeze()  # modules and rules live until the end: collections for requests need not look at them
    ready()
    while not ends.is_set():
        runtime.follow()
        connections.sweep(loop.time())
        try:
            await asyncio.wait_for(ends.wait(), EVERY)
        except TimeoutError:
            continue
    await finish(app, server, connections)
    if watched is not None:
        watched.close()
    await runtime.aclose()


async def finish(app: App, server: asyncio.Server, connections: Connections) -> None:
    """Let connections send their last request; each answer tells its connection to end."""
    loop, state = asyncio.get_running_loop(), connections.state
    app.drains = True
    await asyncio.sleep(LINGER)
    server.close()
    until = loop.time() + FINISH
    while state.connections and loop.time() < until:
        await asyncio.sleep(0.05)
    connections.shut_down()
    while state.tasks and loop.time() < until + FINISH:
        await asyncio.sleep(0.05)


def tls_of(settings: Settings) -> ssl.SSLContext | None:
    """Return the context for TLS; None without a certificate."""
    if settings.tls_cert is None:
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        context.load_cert_chain(settings.tls_cert, settings.tls_key)
    except OSError as reason:
        why = reason.strerror or str(reason)
        raise InvalidCall(
            f"cannot use --tls-cert {settings.tls_cert} with --tls-key {settings.tls_key}: {why}"
        ) from None
    return context
