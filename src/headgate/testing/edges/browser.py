"""A client for a served app and its clock, and the base class of the suites."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Final

from headgate.stores import MemoryStore, Store
from headgate.testing.clock import ManualClock
from headgate.testing.edges.app import Answer, App, Endpoint, Handle, Site, hello
from headgate.wording import log_of

LATER: Final = 1_000_000_000.0
"""The first instant of a site's clock."""
SOON: Final = 30.0
"""Seconds after which a test fails if an event that should happen at once has not happened."""


class Browser:
    """Sends requests to one site, by default from one client."""

    def __init__(self, site: Site, clock: ManualClock, client: str) -> None:
        self._site, self._client = site, client
        self.clock = clock
        self.limits = site.limits

    def ask(self, path: str = "/", *, method: str = "GET", client: str | None = "", **headers: str) -> Answer:
        """Send one request; `x_key="a"` is a header, `client=None` a client without an address."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return self._site.ask(method, path, named, self._client if client == "" else client)

    def codes(self, *paths: str, times: int = 1, **request: Any) -> list[int]:  # noqa: ANN401
        """Request each path in turn, `times` times; return the statuses."""
        return [self.ask(path, **request).status for path in (paths or ("/",)) * times]

    def told(self, path: str = "/", **request: Any) -> str:  # noqa: ANN401
        """Return the `RateLimit` field of a response."""
        return self.ask(path, **request).fields.get("ratelimit", "")

    @contextmanager
    def asking(self, times: int, path: str = "/", **request: Any) -> Iterator[list[Future[Answer]]]:  # noqa: ANN401
        """Send requests that run at the same time."""
        with ThreadPoolExecutor(times) as threads:
            yield [threads.submit(self.ask, path, **request) for _ in range(times)]


class Serving:
    """The common base of the suites: it builds and serves sites."""

    client = "203.0.113.9"
    """The address of most requests. An adapter that cannot use any address sets two that it can use."""
    other_client = "198.51.100.7"
    """The address of another client."""
    places: Sequence[str] = ("policy",)
    """The places in which a rule can be written."""

    def serve(self, app: App) -> AbstractContextManager[Site]:
        """Build the app in the framework, and serve it."""
        raise TypeError("a subclass of an edge's suite must define serve(app)")

    def store(self, clock: ManualClock) -> Store:
        """Return the store of a site; a subclass may return another one, to try an edge on it."""
        return MemoryStore(clock=clock)

    @contextmanager
    def site(self, *endpoints: Endpoint, **given: Any) -> Iterator[Browser]:  # noqa: ANN401
        """Serve an app of these endpoints on a manual clock; arguments that `App` lacks are options of the edge."""
        clock = ManualClock(LATER)
        app = {name: given.pop(name) for name in ("policy", "default", "key") if name in given}
        options = {"store": self.store(clock), **given}
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
        """Serve an app with one endpoint and these rules, in the policy or at the endpoint; default: 2/minute by ip."""
        full = [{"name": "api", "key": "ip", "limits": "2/minute", **rule} for rule in rules or ({},)]
        if where == "policy":
            given["policy"] = {"rules": full, **given.get("policy", {})}
        limits = full if where == "endpoint" else ()
        with self.site(Endpoint(handle=handle, limits=limits, methods=("GET", "POST")), **given) as site:
            yield site


@contextmanager
def logged(name: str, level: int = logging.INFO) -> Iterator[list[str]]:
    """Collect the lines of a logger while the block runs."""
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
