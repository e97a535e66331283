"""A site and its clock, in the words of a test."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Final

from headgate.stores import MemoryStore
from headgate.testing.clock import ManualClock
from headgate.testing.edges.app import Answer, App, Endpoint, Handle, Site, hello
from headgate.wording import log_of

LATER: Final = 1_000_000_000.0
"""When the clock of a site begins."""
SOON: Final = 30.0
"""Seconds after which a test gives up on what should have happened at once."""


class Browser:
    """Sends requests to one site, as one client unless told otherwise."""

    def __init__(self, site: Site, clock: ManualClock, client: str) -> None:
        self._site, self._client = site, client
        self.clock = clock
        self.limits = site.limits

    def ask(self, path: str = "/", *, method: str = "GET", client: str | None = "", **headers: str) -> Answer:
        """One request; `x_key="a"` is a header, `client=None` a client without an address."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return self._site.ask(method, path, named, self._client if client == "" else client)

    def codes(self, *paths: str, times: int = 1, **request: Any) -> list[int]:  # noqa: ANN401
        """The statuses of requests to each path in turn, again and again."""
        return [self.ask(path, **request).status for path in (paths or ("/",)) * times]

    def told(self, path: str = "/", **request: Any) -> str:  # noqa: ANN401
        """What a response says is left."""
        return self.ask(path, **request).fields.get("ratelimit", "")

    @contextmanager
    def asking(self, times: int, path: str = "/", **request: Any) -> Iterator[list[Future[Answer]]]:  # noqa: ANN401
        """Requests that are under way at the same time."""
        with ThreadPoolExecutor(times) as threads:
            yield [threads.submit(self.ask, path, **request) for _ in range(times)]


class Serving:
    """What suites have in common: how they come by a site."""

    client = "203.0.113.9"
    """The address of most requests. An adapter that cannot choose any address names two that it can have."""
    other_client = "198.51.100.7"
    """The address of another client."""
    places: Sequence[str] = ("policy",)
    """Where a rule can stand."""

    def serve(self, app: App) -> AbstractContextManager[Site]:
        """Build the app in the framework, and serve it."""
        raise TypeError("a subclass of an edge's suite must define serve(app)")

    @contextmanager
    def site(self, *endpoints: Endpoint, **given: Any) -> Iterator[Browser]:  # noqa: ANN401
        """An app of these endpoints, by a clock that stands still; what an `App` does not have is an option."""
        clock = ManualClock(LATER)
        app = {name: given.pop(name) for name in ("policy", "default", "key") if name in given}
        options = {"store": MemoryStore(clock=clock), **given}
        with self.serve(App(endpoints=endpoints or (Endpoint(),), options=options, **app)) as site:
            yield Browser(site, clock, self.client)

    @contextmanager
    def limiting(
        self,
        where: str,
        *rules: Mapping[str, Any],
        handle: Handle = hello,
        **given: Any,  # noqa: ANN401
    ) -> Iterator[Browser]:
        """An app whose one endpoint has these rules, by its policy or at the endpoint: two a minute by address."""
        full = [{"name": "api", "key": "ip", "limits": "2/minute", **rule} for rule in rules or ({},)]
        if where == "policy":
            given["policy"] = {"rules": full, **given.get("policy", {})}
        limits = full if where == "endpoint" else ()
        with self.site(Endpoint(handle=handle, limits=limits, methods=("GET", "POST")), **given) as site:
            yield site


@contextmanager
def logged(name: str, level: int = logging.INFO) -> Iterator[list[str]]:
    """The lines that a logger is given meanwhile."""
    lines: list[str] = []

    class Noting(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(record.getMessage())

    log, noting = log_of(name).logger, Noting(level)
    before = log.level
    log.addHandler(noting)
    log.setLevel(level)
    try:
        yield lines
    finally:
        log.removeHandler(noting)
        log.setLevel(before)
