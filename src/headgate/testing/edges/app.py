"""An app described without a framework: the suite describes it, and an adapter builds it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol


@dataclass(frozen=True)
class Asked:
    """A request, as handlers and the app's functions get it. Header names are in lower case."""

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    rate_limit: Any = None
    """The decision about the request, as the edge shows it to a handler; None for functions that are asked before."""


@dataclass(frozen=True)
class Reply:
    """The response of a handler. A body that is an iterator is streamed, chunk by chunk."""

    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes | Iterator[bytes] = b""


Handle = Callable[[Asked], Reply]
"""A handler: it may block, and an exception in it is raised in the framework's own handler."""


def hello(asked: Asked) -> Reply:
    """Return status 200 and a short body."""
    return Reply(body=b"hello")


@dataclass(frozen=True, kw_only=True)
class Endpoint:
    """One endpoint. Parameters of its path are written `/items/{id}`.

    `limits` are the arguments of the edge's `limited`, one mapping for each decorator, the outermost first. If `above`
    is true, these decorators are above the one that registers the route.
    """

    path: str = "/"
    methods: Sequence[str] = ("GET",)
    limits: Sequence[Mapping[str, Any]] = ()
    exempt: bool = False
    above: bool = False
    handle: Handle = hello


@dataclass(frozen=True, kw_only=True)
class App:
    """An app with limits. `options` are arguments of the edge, `store` among them."""

    endpoints: Sequence[Endpoint] = (Endpoint(),)
    policy: Any = None
    default: Any = None
    """The limits of each endpoint without limits of its own, counted by `key`."""
    key: Any = "ip"
    options: Mapping[str, Any] = field(default_factory=dict)


class Answer(NamedTuple):
    """A response as the client receives it."""

    status: int
    headers: Sequence[tuple[str, str]]
    body: bytes

    @property
    def fields(self) -> dict[str, str]:
        """The headers by their name in lower case; no header may appear twice."""
        found = {name.lower(): value for name, value in self.headers}
        assert len(found) == len(self.headers), f"a header appears twice: {self.headers}"
        return found


class Site(Protocol):
    """A served app."""

    limits: Any
    """The app's limits: `frozen`, `disabled` and `reset_all` take them, and they have `policy` and `reload()`."""

    def ask(self, method: str, path: str, headers: Mapping[str, str], client: str | None) -> Answer:
        """Send a request from this address, or from none; return its whole response. Several threads may call this."""
        ...


def with_functions(given: Mapping[str, Any], adapt: Callable[[Callable[[Asked], Any]], Any]) -> dict[str, Any]:
    """Return the same arguments, with functions of an `Asked` adapted to the edge's own requests."""

    def adapted(value: Any) -> Any:  # noqa: ANN401
        if isinstance(value, list | tuple):
            return [adapted(each) for each in value]
        return adapt(value) if callable(value) else value

    return {name: adapted(value) for name, value in given.items()}
