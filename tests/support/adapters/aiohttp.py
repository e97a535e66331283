"""aiohttp, on real sockets: clients come from two addresses of the loopback network, or from a unix socket."""

from __future__ import annotations

import asyncio
import http.client
import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from aiohttp import web

from headgate.testing.edges import Answer, App, Asked, EdgeSuite, Endpoint, with_functions
from headgate.web import aiohttp
from tests.support.adapters.bare import options_of
from tests.support.adapters.loops import asked_of, in_loop, pieces_of
from tests.support.serving import UnixConnection


def asked(request: web.Request) -> Asked:
    seen = request.get(aiohttp.RATE_LIMIT)
    return asked_of(request.method, request.path, request.query_string, request.headers.items(), seen)


def by_request(function: Any) -> Any:
    return lambda request: function(asked(request))


class AiohttpSuite(EdgeSuite):
    """`RateLimits(app)`."""

    client = "127.0.0.1"
    other_client = "127.0.0.2"

    @contextmanager
    def serve(self, app: App) -> Iterator[Any]:
        """By a server in a thread."""
        built = web.Application()
        limits = aiohttp.RateLimits(built, app.policy, default=app.default, key=app.key, **options_of(app, by_request))
        for endpoint in app.endpoints:
            put(built, endpoint)
        with tempfile.TemporaryDirectory() as short, in_loop() as run:
            path = os.path.join(short, "s")
            runner = web.AppRunner(built, access_log=None)

            async def start() -> int:
                await runner.setup()
                await web.TCPSite(runner, "127.0.0.1", 0).start()
                await web.UnixSite(runner, path).start()
                return int(runner.addresses[0][1])

            port = run(start())
            try:
                yield AiohttpSite(limits, port, path)
            finally:
                run(runner.cleanup())


def put(built: web.Application, endpoint: Endpoint) -> None:
    """One route."""

    async def handler(request: web.Request) -> web.StreamResponse:
        reply = await asyncio.to_thread(endpoint.handle, asked(request))
        if isinstance(reply.body, bytes):
            return web.Response(body=reply.body, status=reply.status, headers=dict(reply.headers))
        response = web.StreamResponse(status=reply.status, headers=dict(reply.headers))
        await response.prepare(request)
        async for piece in pieces_of(reply.body):
            await response.write(piece)
        return response

    routes = web.RouteTableDef()
    made: Any = handler
    for method in endpoint.methods if endpoint.above else ():
        made = routes.route(method, endpoint.path)(made)
    for limit in reversed(endpoint.limits):
        made = aiohttp.limited(**with_functions(limit, by_request))(made)
    if endpoint.exempt:
        made = aiohttp.exempt(made)
    for method in () if endpoint.above else endpoint.methods:
        (built.router.add_get if method == "GET" else lambda *a, m=method: built.router.add_route(m, *a))(
            endpoint.path, made
        )
    built.add_routes(routes)


class AiohttpSite:
    """A server, asked by a client that knows nothing of aiohttp."""

    def __init__(self, limits: Any, port: int, path: str) -> None:
        self._port, self._path = port, path
        self.limits = limits

    def ask(self, method: str, path: str, headers: Mapping[str, str], client: str | None) -> Answer:
        """On a connection of its own."""
        connection: Any = UnixConnection(self._path)
        if client is not None:
            connection = http.client.HTTPConnection("127.0.0.1", self._port, source_address=(client, 0), timeout=30)
        try:
            connection.request(method, path, headers=dict(headers))
            answer = connection.getresponse()
            return Answer(answer.status, answer.getheaders(), answer.read())
        finally:
            connection.close()
