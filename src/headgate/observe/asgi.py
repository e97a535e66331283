"""The pages `/metrics`, `/counts` and `/top` as an ASGI app, to be mounted: `app.mount("/watch", pages(limits))`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from pathlib import Path
from typing import Any

from headgate.observe.access import FORWARDED, May, bearing, from_loopback, guarded_by, peer_itself
from headgate.observe.pages import Pages, Seen
from headgate.observe.publish import Watched
from headgate.observe.snapshot_parts import Source

__all__ = ["AsgiPages", "May", "bearing", "from_loopback", "pages"]

Message = MutableMapping[str, Any]


def pages(*sources: Source, publish: str | Path | None = None, token: str | None = None) -> AsgiPages:
    """Return an app with the pages of these edges and limiters.

    Without a `token`, only clients on loopback are answered, and none behind a proxy. With it,
    requests need `Authorization: Bearer TOKEN`. Several workers need `publish`, a directory for their counts.
    """
    may = guarded_by(token)
    return AsgiPages(Watched(sources, publish).snapshot, may)


class AsgiPages:
    """An ASGI app."""

    def __init__(self, seen: Seen, may: May) -> None:
        self._pages = Pages(seen, may)

    async def __call__(
        self,
        scope: Message,
        receive: Callable[[], Awaitable[Message]],
        send: Callable[[Message], Awaitable[None]],
    ) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            return
        sent = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        given = sent.get("authorization", "")
        peer = scope["client"][0] if scope.get("client") else None
        peer = peer_itself(peer, sent.get("host", ""), not FORWARDED.isdisjoint(sent))
        status, kind, body = self._pages.answer(scope["method"], scope["path"], peer, given)
        headers = [(b"content-type", kind.encode()), (b"cache-control", b"no-store")]
        headers.append((b"content-length", str(len(body)).encode()))
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else body})
