"""The window that the peer has for bodies of requests."""

from __future__ import annotations

import asyncio

from headgate.edge.envoy.frames import CONNECTION_WINDOW, FLOW_CONTROL_ERROR, WINDOW_UPDATE, Failed, frame


class Receiver:
    """Widens the window by the bytes of complete requests only, so that those of all others are bounded."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._held = 0
        """Bytes of requests that are not complete."""
        self._unreported = 0
        """Bytes by which the window was not widened again yet."""

    def take(self, size: int) -> None:
        """Note bytes that came."""
        self._held += size
        if self._held > CONNECTION_WINDOW:
            raise Failed(FLOW_CONTROL_ERROR)

    def drop(self, size: int) -> None:
        """Note that bytes are held no more; the peer may send as many again."""
        self._held -= size
        self._unreported += size
        if self._unreported > CONNECTION_WINDOW // 8:
            self._transport.write(frame(WINDOW_UPDATE, 0, 0, self._unreported.to_bytes(4, "big")))
            self._unreported = 0
