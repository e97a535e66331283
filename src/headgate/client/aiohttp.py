"""`middleware`: a budget for aiohttp 3.12 or newer.

session = aiohttp.ClientSession(middlewares=[middleware(github)])

A response cannot be made up here: a refusal raises `BudgetExhausted`, also with `refusal="response"`. The timeout
`total` of a session includes the time that a request waits for its turn. When a connection is lost, aiohttp itself
sends an idempotent request once more; the budget counts that as another request.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from headgate.client.budget import Budget, checked_budget
from headgate.client.outgoing import Outgoing, host_of
from headgate.client.retrying import Failure
from headgate.steps import kept
from headgate.wording import requiring

with requiring("headgate.client.aiohttp", "aiohttp", extra="aiohttp"):
    import aiohttp
    from aiohttp import ClientRequest, ClientResponse, StreamReader
    from aiohttp.payload import BytesPayload

Handler = Callable[[ClientRequest], Awaitable[ClientResponse]]


def middleware(budget: Budget) -> Callable[[ClientRequest, Handler], Awaitable[ClientResponse]]:
    """Return a middleware that sends each request in its turn of a budget."""
    checked_budget(budget, "a middleware")

    async def send(request: ClientRequest, handler: Handler) -> ClientResponse:
        outgoing = _Request(request, handler)
        if budget.usage is not None and outgoing.repeatable and request.body:
            outgoing.body = await request.body.as_bytes()
        response: ClientResponse = await budget.run_async(outgoing)
        return response

    return send


class _Request(Outgoing):
    """A request of a session."""

    decompressed = True

    def __init__(self, request: ClientRequest, handler: Handler) -> None:
        self._request, self._handler = request, handler
        self.method = request.method
        url = request.url
        self.host = host_of(url.scheme, url.raw_host or "", url.port)
        self.path = url.path
        self.headers = request.headers
        if request.body and not isinstance(request.body, BytesPayload):  # an iterator, or a file
            self.body, self.repeatable = None, False

    def send(self) -> Awaitable[ClientResponse]:
        self._write_added(self._request.headers)
        return self._handler(self._request)

    def head(self, response: ClientResponse) -> tuple[int, Mapping[str, str]]:
        return response.status, response.headers

    def content(self, response: ClientResponse) -> Awaitable[bytes]:
        return response.read()

    def close(self, response: ClientResponse) -> Any:  # noqa: ANN401
        return response.release()

    def failure(self, error: Exception) -> Failure | None:
        if isinstance(error, aiohttp.ClientSSLError):  # a certificate does not become valid by another attempt
            return None
        if isinstance(error, (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError)):
            return "refused"
        return "lost" if isinstance(error, aiohttp.ClientConnectionError) else None

    def watch(self, response: ClientResponse, feed: Callable[[bytes], None], end: Callable[[], Any]) -> ClientResponse:
        content: Any = _Watched(response.content, feed, end)
        response.content = content
        return response


def _watched(name: str) -> Callable[..., Awaitable[Any]]:
    """Return a method that reads by the method of this name of a stream, and feeds the bytes to a reader."""

    async def read(self: _Watched, *args: Any, **options: Any) -> Any:  # noqa: ANN401
        result = await getattr(self._content, name)(*args, **options)
        self._feed(result[0] if isinstance(result, tuple) else result)
        if self._content.at_eof() and not self._ended:
            self._ended = True
            await self._end()
        return result

    return read


class _Watched:
    """The content of a response, which is fed to a reader as the caller reads it."""

    def __init__(self, content: Any, feed: Callable[[bytes], None], end: Callable[[], Any]) -> None:  # noqa: ANN401
        self._content, self._feed, self._end = content, feed, end
        self._ended = False

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        return getattr(self._content, name)

    def set_exception(self, *args: Any) -> None:  # noqa: ANN401
        """End the content of a response that is closed before its last byte; closing it does not wait."""
        self._content.set_exception(*args)
        if not self._ended:
            self._ended = True
            kept(asyncio.get_running_loop().create_task(self._settle()))

    async def _settle(self) -> None:
        await self._end()

    read, readany, readexactly = _watched("read"), _watched("readany"), _watched("readexactly")
    readline, readuntil, readchunk = _watched("readline"), _watched("readuntil"), _watched("readchunk")
    # The iterators of a stream call the methods above.
    __aiter__: Any = StreamReader.__aiter__
    iter_any: Any = StreamReader.iter_any
    iter_chunked: Any = StreamReader.iter_chunked
    iter_chunks: Any = StreamReader.iter_chunks
