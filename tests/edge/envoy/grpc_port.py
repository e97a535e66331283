"""The gRPC service in a thread of this process, on a port of its own."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Sequence
from pathlib import Path

from headgate.edge.envoy import EnvoyLimits
from headgate.edge.envoy.grpc import Calls
from headgate.edge.envoy.http2 import Connection
from headgate.stores import AsyncStore, Store, open_store


class GrpcPort:
    """Serves the limits of a directory until it is closed."""

    def __init__(self, directory: Path, store: Store | None = None, tokens: Sequence[bytes] = ()) -> None:
        self._store = open_store(store, None)
        self.calls = Calls(EnvoyLimits(directory, self._store), self._store, tokens)
        self.connections: set[Connection] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        listener = socket.create_server(("127.0.0.1", 0))
        for option in (socket.SO_RCVBUF, socket.SO_SNDBUF):  # small, so that a peer that does not read fills them soon
            listener.setsockopt(socket.SOL_SOCKET, option, 65_536)
        self.port: int = listener.getsockname()[1]
        self._server = asyncio.run_coroutine_threadsafe(self._listen(listener), self._loop).result(10)

    async def _listen(self, listener: socket.socket) -> asyncio.Server:
        return await self._loop.create_server(lambda: Connection(self.calls, self.connections), sock=listener)

    def drain(self) -> None:
        """Tell every peer to go elsewhere."""

        async def tell() -> None:
            for each in list(self.connections):
                each.drain()

        asyncio.run_coroutine_threadsafe(tell(), self._loop).result(10)

    def close(self) -> None:
        """End the service, its store and its thread."""

        async def end() -> None:
            self._server.close()
            for each in list(self.connections):
                each.abort()
            await asyncio.sleep(0)
            if isinstance(self._store, AsyncStore):
                await self._store.aclose()

        asyncio.run_coroutine_threadsafe(end(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()
