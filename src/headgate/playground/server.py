"""The server of the playground: the standard library's, on 127.0.0.1 only."""

from __future__ import annotations

import os
import socket
import sys
import threading
import webbrowser
from collections.abc import Callable, Sequence
from pathlib import Path
from socketserver import TCPServer, ThreadingMixIn
from typing import Final
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from headgate.errors import InvalidCall
from headgate.playground.app import App
from headgate.playground.logs import Client, busiest

ADDRESS: Final = "127.0.0.1"
DEFAULT_PORT: Final = 8642
PORTS_TRIED: Final = 50
SLOW: Final = 10
"""Seconds that a client may take to send its request."""


class Server(ThreadingMixIn, WSGIServer):
    """A thread for each connection; none of them keeps the process alive."""

    daemon_threads = True
    block_on_close = False
    request_queue_size = 64

    def server_bind(self) -> None:
        """Bind without a look-up of the host's name, which may take seconds."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = ADDRESS, self.server_address[1]
        self.setup_environ()

    def handle_error(self, request: object, client_address: object) -> None:
        """A page that closes its connection is no error."""


class Handler(WSGIRequestHandler):
    """Logs nothing, and does not look up the client's name."""

    timeout = SLOW

    def address_string(self) -> str:
        """Return the address itself."""
        return str(self.client_address[0])

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name of the standard library
        """Say nothing: the terminal belongs to the address of the page."""


class Playground:
    """A running server. `port` is the one asked for, or the next that is free."""

    def __init__(self, port: int = DEFAULT_PORT, clients: Sequence[Client] = ()) -> None:
        self._server = _bound(port)
        self.port: int = self._server.server_port
        self.address = f"http://{ADDRESS}:{self.port}/"
        self.app = App((f"{name}:{self.port}" for name in (ADDRESS, "localhost")), clients)
        self._server.set_app(self.app)

    def serve(self) -> None:
        """Serve until `close`, or until Ctrl-C."""
        try:
            self._server.serve_forever(poll_interval=0.1)
        except KeyboardInterrupt:
            pass
        finally:
            self.app.closing.set()
            self._server.server_close()

    def close(self) -> None:
        """End `serve`, from another thread."""
        self._server.shutdown()


def _bound(port: int) -> Server:
    if not 0 <= port <= 65_535:
        raise InvalidCall(f"a port is a number from 0 to 65535; got {port}")
    for number in range(port, min(port + PORTS_TRIED, 65_536)) if port else (0,):
        try:
            return Server((ADDRESS, number), Handler)
        except OSError:
            continue
    raise InvalidCall(f"no port from {port} to {port + PORTS_TRIED - 1} is free: give another --port")


def playground(port: int = DEFAULT_PORT, *, opens: bool, log: str | None, say: Callable[[str], None]) -> None:
    """Serve the playground until Ctrl-C; `say` prints."""
    served = Playground(port, busiest(lambda: Path(log)) if log else ())
    if port and served.port != port:
        say(f"port {port} is in use")
    say(f"The playground is at {served.address}  (Ctrl-C ends it)")
    remote = os.environ.get("SSH_CONNECTION")
    if remote:
        say(f"From your own machine: ssh -L {served.port}:{ADDRESS}:{served.port} {socket.gethostname()}")
    elif opens and _has_screen():
        threading.Thread(target=webbrowser.open, args=(served.address,), daemon=True).start()
    served.serve()


def _has_screen() -> bool:
    """Whether a browser can open a window: in a terminal alone, `webbrowser` would start a text browser there."""
    return sys.platform in ("darwin", "win32") or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
