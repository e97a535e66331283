"""A worker for HTTP: the app on uvicorn's protocol, on a socket that all workers share."""

from __future__ import annotations

import asyncio
import signal
import socket
import ssl
from collections.abc import Callable
from typing import Any, Final

from headgate.edge.app import App
from headgate.edge.building import build
from headgate.edge.messages import log_to_stderr
from headgate.edge.settings import Settings
from headgate.edge.worker import Ready
from headgate.wording import requiring

with requiring("headgate serve", "uvicorn", extra="serve"):
    import uvicorn
    from uvicorn.server import ServerState
with requiring("headgate serve", "httptools", extra="serve"):
    from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

KEEP_ALIVE: Final = 75
"""Seconds that an idle connection stays open: longer than proxies keep theirs (60 s), so that none finds it closed."""
LINGER: Final = 1.0
"""Seconds for which a worker that is told to end still takes connections, while /readyz says that it is not ready."""
FINISH: Final = 5.0
"""Seconds that connections get after that to send their last request."""
EVERY: Final = 1.0


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
    state = ServerState()
    config = uvicorn.Config(
        app, interface="asgi3", http=HttpToolsProtocol, ws="none", lifespan="off", log_config=None, access_log=False,
        proxy_headers=False, server_header=False, date_header=False, timeout_keep_alive=KEEP_ALIVE,
    )  # fmt: skip
    config.load()

    def protocol() -> Any:  # noqa: ANN401
        return HttpToolsProtocol(config=config, server_state=state, app_state={}, _loop=loop)

    server = await loop.create_server(protocol, sock=listener, ssl=tls_of(settings), backlog=2048)
    ready()
    while not ends.is_set():
        runtime.follow()
        try:
            await asyncio.wait_for(ends.wait(), EVERY)
        except TimeoutError:
            continue
    await finish(app, server, state)
    await runtime.aclose()


async def finish(app: App, server: asyncio.Server, state: ServerState) -> None:
    """Let connections send their last request; each answer tells its connection to end."""
    app.drains = True
    await asyncio.sleep(LINGER)
    server.close()
    loop = asyncio.get_running_loop()
    until = loop.time() + FINISH
    while state.connections and loop.time() < until:
        await asyncio.sleep(0.05)
    for connection in list(state.connections):
        connection.shutdown()
    while state.tasks and loop.time() < until + FINISH:
        await asyncio.sleep(0.05)


def tls_of(settings: Settings) -> ssl.SSLContext | None:
    """Return the context for TLS; None without a certificate."""
    if settings.tls_cert is None:
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(settings.tls_cert, settings.tls_key)
    return context
