"""A service on a real socket that answers as a test tells it, and notes all requests."""

from __future__ import annotations

import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

from headgate.testing import ManualClock


class Reply(NamedTuple):
    """What the service answers. `wait` is told in the words of the protocol."""

    status: int = 200
    wait: float | None = None
    headers: Mapping[str, str] = {}
    body: bytes = b"hello"
    cut: bool = False
    """Whether the connection is cut in place of an answer."""
    takes: float = 0.0
    """Real seconds until the answer."""


class Seen(NamedTuple):
    """A request as the service saw it, and when by the clock of the budget. Names of headers are in lower case."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes
    at: float


class Service:
    """Answers by `replies`, in their order, and with `Reply()` after the last of them."""

    address = ""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.replies: deque[Reply] = deque()
        self.seen: list[Seen] = []
        self._open = threading.Event()
        self._open.set()
        self.watch: Callable[[Any], object] = lambda context: None
        """Is called with the context of each call of gRPC."""
        self._lock = threading.Lock()

    @contextmanager
    def answering(self, method: str, path: str, headers: Mapping[str, str], body: bytes) -> Iterator[Reply]:
        """Note a request, and return its reply."""
        with self._lock:
            self.seen.append(Seen(method, path, headers, body, self.clock.now()))
            reply = self.replies.popleft() if self.replies else Reply()
        self._open.wait(10)
        time.sleep(reply.takes)
        yield reply

    def hold(self) -> None:
        """Answer no request until `release`."""
        self._open.clear()

    def release(self) -> None:
        """Answer again."""
        self._open.set()


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_: Any) -> None:
        """A client may leave in the middle of an answer."""


@contextmanager
def http_service(clock: ManualClock) -> Iterator[Service]:
    """A service by HTTP/1.1, with connections that stay open."""
    service = Service(clock)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def handle_any(self) -> None:
            headers = {name.lower(): value for name, value in self.headers.items()}
            with service.answering(self.command, self.path, headers, self.read_body(headers)) as reply:
                if reply.cut:
                    self.close_connection = True
                    self.connection.shutdown(socket.SHUT_RDWR)
                    return
                self.send_response(reply.status)
                told = {} if reply.wait is None else {"Retry-After": f"{reply.wait:g}"}
                for name, value in {"Content-Length": str(len(reply.body)), **told, **reply.headers}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(reply.body)

        do_GET = do_POST = do_PUT = handle_any

        def read_body(self, headers: Mapping[str, str]) -> bytes:
            if headers.get("transfer-encoding") != "chunked":
                return self.rfile.read(int(headers.get("content-length", 0)))
            body = b""
            while size := int(self.rfile.readline(), 16):
                body += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
            return body

        def log_message(self, *words: Any) -> None:
            pass

    with _Server(("127.0.0.1", 0), Handler) as server:
        service.address = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield service
        finally:
            server.shutdown()
            thread.join()


def silent_port() -> int:
    """A port on which nobody listens."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])
