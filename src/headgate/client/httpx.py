"""`Transport`: a budget for httpx and httpx2, for threads and for event loops.

http = httpx2.Client(transport=Transport(github))
http = httpx2.AsyncClient(transport=Transport(github))
"""

from __future__ import annotations

import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from functools import cache, cached_property
from importlib.util import find_spec
from ssl import SSLEOFError, SSLError, SSLZeroReturnError
from typing import Any

from headgate.client.budget import Budget, checked_budget
from headgate.client.outgoing import Outgoing, refusal_content, refusal_fields
from headgate.client.retrying import Failure
from headgate.errors import BudgetExhausted, InvalidCall
from headgate.wording import missing

if find_spec("httpx") is None and find_spec("httpx2") is None:  # requests bring their library with them
    raise ModuleNotFoundError(missing("headgate.client.httpx", "httpx", "httpx"), name="httpx")


class Transport:
    """Sends requests by another transport, each in its turn of a budget.

    `inner` is the transport that sends: by default the library's own, with its defaults.
    """

    def __init__(self, budget: Budget, inner: Any = None) -> None:  # noqa: ANN401 - of either library
        self._budget = checked_budget(budget, "a Transport")
        self._sync: Any = inner
        self._async: Any = inner
        self._lock = threading.Lock()

    def handle_request(self, request: Any) -> Any:  # noqa: ANN401
        """Send a request of a client for threads."""
        if self._sync is None:
            with self._lock:  # one transport, or the connections of another would be lost with it
                self._sync = self._sync or _library(request).HTTPTransport()
        return self._budget.run(_Request(request, self._sync.handle_request, awaits=False))

    async def handle_async_request(self, request: Any) -> Any:  # noqa: ANN401
        """Send a request of a client for event loops."""
        if self._async is None:
            self._async = _library(request).AsyncHTTPTransport()
        return await self._budget.run_async(_Request(request, self._async.handle_async_request, awaits=True))

    def close(self) -> None:
        """Close the transport that sends."""
        if self._sync is not None:
            self._sync.close()

    async def aclose(self) -> None:
        """Close the transport that sends."""
        if self._async is not None:
            await self._async.aclose()

    def __enter__(self) -> Transport:
        if self._sync is not None:
            self._sync.__enter__()
        return self

    def __exit__(self, *of_error: object) -> None:
        self.close()

    async def __aenter__(self) -> Transport:
        if self._async is not None:
            await self._async.__aenter__()
        return self

    async def __aexit__(self, *of_error: object) -> None:
        await self.aclose()


def _library(request: object) -> Any:  # noqa: ANN401
    """Return the library that a request is of: httpx or httpx2."""
    for name in ("httpx2", "httpx"):  # not by the class's module, which SDKs change
        library = sys.modules.get(name)
        if library is not None and isinstance(request, library.Request):
            return library
    raise InvalidCall(f"a Transport sends requests of httpx or httpx2; got a value of type {type(request).__name__}")


class _Request(Outgoing):
    """A request of either library."""

    def __init__(self, request: Any, send: Callable[[Any], Any], awaits: bool) -> None:  # noqa: ANN401
        self._request, self._send, self._awaits = request, send, awaits
        self.host = request.url.netloc.decode("ascii")  # in lower case, without a user, and without a default port

    # Most requests pass at once, and nobody asks for these.
    @cached_property
    def method(self) -> str:  # type: ignore[override]
        return str(self._request.method)

    @cached_property
    def headers(self) -> Mapping[str, str]:  # type: ignore[override]
        fields: Mapping[str, str] = self._request.headers
        return fields

    @cached_property
    def path(self) -> str:  # type: ignore[override]
        return str(self._request.url.path)

    @cached_property
    def body(self) -> bytes | None:  # type: ignore[override]
        try:
            content: bytes = self._request.content
        except Exception:  # RequestNotRead: the body is an iterator, which is sent once
            return None
        return content

    @cached_property
    def repeatable(self) -> bool:  # type: ignore[override]
        return self.body is not None

    def send(self) -> Any:  # noqa: ANN401
        if self.added:
            self._write_added(self._request.headers)
        return self._send(self._request)

    def head(self, response: Any) -> tuple[int, Mapping[str, str]]:  # noqa: ANN401
        return response.status_code, response.headers

    def content(self, response: Any) -> Any:  # noqa: ANN401
        return response.aread() if self._awaits else response.read()

    def close(self, response: Any) -> Any:  # noqa: ANN401
        return response.aclose() if self._awaits else response.close()

    def failure(self, error: Exception) -> Failure | None:
        library = _library(self._request)
        ours = library.PoolTimeout, library.UnsupportedProtocol, library.LocalProtocolError
        if isinstance(error, ours) or _is_about_trust(error):  # another attempt would fail in the same way
            return None
        if isinstance(error, (library.ConnectError, library.ConnectTimeout)):
            return "refused"
        return "lost" if isinstance(error, library.TransportError) else None

    def refusal(self, error: BudgetExhausted) -> Any:  # noqa: ANN401
        return _library(self._request).Response(
            429, headers=refusal_fields(error), json=refusal_content(error), request=self._request
        )

    def read_already(self, response: Any) -> bytes | None:  # noqa: ANN401
        return response.content if response.is_closed else None  # of a cache, or of a test's transport

    def watch(self, response: Any, feed: Callable[[bytes], None], end: Callable[[], Any]) -> Any:  # noqa: ANN401
        response.stream = _watching(_library(self._request), self._awaits)(response.stream, feed, end)
        return response


def _is_about_trust(error: BaseException) -> bool:
    """Return whether TLS failed, by a certificate or a version; a handshake that was cut is a lost connection."""
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, SSLError):
        cause = cause.__cause__
    return cause is not None and not isinstance(cause, (SSLEOFError, SSLZeroReturnError))


class _Watched:
    """A body that is read by the caller and fed to a reader on its way; the bytes are not touched."""

    def __init__(self, body: Any, feed: Callable[[bytes], None], end: Callable[[], Any]) -> None:  # noqa: ANN401
        self._body, self._feed, self._end = body, feed, end
        self._ended = False

    def __iter__(self) -> Iterator[bytes]:
        for chunk in self._body:
            self._feed(chunk)
            yield chunk

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for chunk in self._body:
            self._feed(chunk)
            yield chunk

    def close(self) -> None:
        try:
            self._body.close()
        finally:
            if not self._ended:
                self._ended = True
                self._end()

    async def aclose(self) -> None:
        try:
            await self._body.aclose()
        finally:
            if not self._ended:
                self._ended = True
                await self._end()


@cache
def _watching(library: Any, awaits: bool) -> type[_Watched]:  # noqa: ANN401
    """Return `_Watched` as a body of this library, which looks at the class of each body."""
    base = library.AsyncByteStream if awaits else library.SyncByteStream
    return type("_WatchedBody", (_Watched, base), {})
