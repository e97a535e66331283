"""Sites in an event loop of their own, asked from any thread."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar
from urllib.parse import parse_qsl

from headgate.testing.edges import Answer, Asked
from headgate.testing.edges.browser import SOON

T = TypeVar("T")
Run = Callable[[Coroutine[Any, Any, T]], T]


@contextmanager
def in_loop() -> Iterator[Run[Any]]:
    """A function that runs coroutines in a loop in a thread, and waits for them."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        yield lambda coroutine: asyncio.run_coroutine_threadsafe(coroutine, loop).result(SOON)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.run_until_complete(loop.shutdown_default_executor())
        loop.close()


async def pieces_of(body: Iterator[bytes]) -> AsyncIterator[bytes]:
    """A stream, each piece made in a thread: it may block."""
    while (piece := await asyncio.to_thread(next, body, None)) is not None:
        yield piece


def asked_of(method: str, path: str, query: str, headers: Any, rate_limit: Any = None) -> Asked:
    """A request in no framework's words."""
    lines = {name.lower(): value for name, value in headers}
    return Asked(method, path, dict(parse_qsl(query, keep_blank_values=True)), lines, rate_limit)


class AsgiSite:
    """An ASGI app that has been started."""

    def __init__(self, app: Any, limits: Any, run: Run[Any]) -> None:
        self._app, self.run = app, run
        self.limits = limits

    def ask(self, method: str, path: str, headers: Mapping[str, str], client: str | None) -> Answer:
        """As a server does: a HEAD has no body, and an app that fails before it has answered is answered for."""
        answer: Answer = self.run(self._ask(method, path, headers, client))
        return answer

    async def _ask(self, method: str, path: str, headers: Mapping[str, str], client: str | None) -> Answer:
        raw, _, query = path.partition("?")
        lines = [(name.encode(), value.encode()) for name, value in headers.items()]
        scope = {
            "type": "http", "http_version": "1.1", "asgi": {"version": "3.0"}, "scheme": "http", "root_path": "",
            "method": method, "path": raw, "raw_path": raw.encode(), "query_string": query.encode(),
            "headers": [(b"host", b"testserver"), *lines],
            "client": None if client is None else (client, 4711), "server": ("testserver", 80), "extensions": {},
        }  # fmt: skip
        sent: list[dict[str, Any]] = []
        waiting = [{"type": "http.request", "body": b"", "more_body": False}]
        over = asyncio.Event()

        async def receive() -> Any:
            if waiting:
                return waiting.pop()
            await over.wait()
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            sent.append(message)

        try:
            await self._app(scope, receive, send)
        except Exception as error:
            if not isinstance(error, LookupError):  # which is what handlers of the suite raise
                raise
        if not sent:
            return Answer(500, [], b"")
        fields = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in sent[0].get("headers", ())]
        body = b"" if method == "HEAD" else b"".join(each.get("body", b"") for each in sent[1:])
        return Answer(sent[0]["status"], fields, body)


@contextmanager
def started(app: Any, limits: Any) -> Iterator[AsgiSite]:
    """Tell an ASGI app that the server starts, and afterwards that it ends."""
    with in_loop() as run:
        events: list[str] = []

        async def live() -> Any:
            inbox: asyncio.Queue[Any] = asyncio.Queue()
            outbox: asyncio.Queue[Any] = asyncio.Queue()
            task = asyncio.ensure_future(app({"type": "lifespan", "asgi": {"version": "3.0"}}, inbox.get, outbox.put))
            return inbox, outbox, task

        async def tell(message: str) -> None:
            await inbox.put({"type": f"lifespan.{message}"})
            answer = asyncio.ensure_future(outbox.get())
            done, _ = await asyncio.wait([answer, task], return_when=asyncio.FIRST_COMPLETED)
            if answer in done:
                events.append(answer.result()["type"])
            else:
                answer.cancel()
            if task in done and task.exception() is not None:
                raise task.exception()

        inbox, outbox, task = run(live())
        run(tell("startup"))
        try:
            yield AsgiSite(app, limits, run)
        finally:
            run(tell("shutdown"))
