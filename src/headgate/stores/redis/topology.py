"""The servers of a store: which server has which keys, which servers are away, and the free connections."""

from __future__ import annotations

import logging
import random
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from headgate.clock import SECOND
from headgate.stores.breaker import Breaker
from headgate.stores.redis.compiled import Command
from headgate.stores.redis.connect import Connector, slot_of, told
from headgate.stores.redis.library import (
    FAILURES,
    AskError,
    MovedError,
    NoScriptError,
    ReadOnlyError,
    ResponseError,
    TryAgainError,
    understood,
)  # fmt: skip
from headgate.wording import log_of

MOST_HOPS: Final = 5
"""The most times that a command is sent: again only if a server replied that it had not run it."""
MOST_FREE: Final = 64
LONG_IDLE: Final = 1.0
"""Seconds after which the server may have closed an idle connection."""
FIRST_PROBE: Final = 0.05
LONGEST_PROBE: Final = 0.5

Address = tuple[str, int] | None
log = log_of("headgate")


class Away(ConnectionError):
    """The breaker is open: the server is not asked."""


class Transition(NamedTuple):
    """A server went away, or came back."""

    server: str
    available: bool
    reason: str


class Node:
    """One server."""

    def __init__(self, connector: Connector, address: Address) -> None:
        self.address = address
        self.name = f"{address[0]}:{address[1]}" if address else connector.url.service or "server"
        self.breaker = Breaker()
        self._connector = connector
        self._free: deque[tuple[Any, float]] = deque()
        """Free connections, and the time since which each is free."""

    def ask(self, data: bytes, replies: int = 1, began: float | None = None) -> list[Any]:
        """Send data and return `replies` replies; an error that the server sends is a reply too.

        The deadline counts from `began`.
        """
        if began is None:
            began = time.monotonic()
        connection = self._idle()
        if connection is None:
            connection, began = self._connect(began)
        connection.due = began + self._connector.timeouts.answer
        got: list[Any] = []
        try:
            connection.send_packed_command([data], check_health=False)
            while len(got) < replies:
                try:
                    got.append(connection.read_response(disable_decoding=True))
                except ResponseError as error:
                    got.append(error)
        except ValueError as nonsense:
            connection.disconnect()
            raise Away(f"{self.name} does not answer like a Redis or Valkey server") from nonsense
        except BaseException:
            # A reply that arrives later would be read as the answer to the next command.
            connection.disconnect()
            raise
        if len(self._free) < MOST_FREE:
            self._free.append((connection, time.monotonic()))
        else:
            connection.disconnect()
        return got

    def _idle(self) -> Any:  # noqa: ANN401
        """Return a free connection; one that was idle for a while is checked, since the server may have closed it."""
        while True:
            try:
                connection, since = self._free.pop()
            except IndexError:
                return None
            if time.monotonic() - since < LONG_IDLE or not connection.hung_up():
                return connection
            connection.disconnect()

    def _connect(self, began: float) -> tuple[Any, float]:
        """Return a new connection, and the start of the answer's time, which includes connecting after a failure."""
        # While the breaker is open, only a probe connects, and no caller waits for it.
        hurried = self.breaker.troubled and not self.breaker.open
        try:
            connection = self._connector.connect(self.address, began + self._connector.patience(hurried))
        except ValueError as nonsense:
            raise Away(f"{self.name} does not answer like a Redis or Valkey server") from nonsense
        return connection, began if hurried else time.monotonic()

    def command(self, *words: bytes | int) -> Any:  # noqa: ANN401
        """Send one plain command, and return its reply."""
        texts = [b"%d" % word if isinstance(word, int) else word for word in words]
        reply = self.ask(b"*%d\r\n" % len(texts) + b"".join(b"$%d\r\n%b\r\n" % (len(text), text) for text in texts))[0]
        if isinstance(reply, Exception):
            raise reply
        return reply

    def hang_up(self) -> None:
        """Close the free connections: the next command connects again."""
        while self._free:
            try:
                self._free.pop()[0].disconnect()
            except IndexError:
                return

    def forget(self) -> None:
        """Drop all connections after a fork: they are the parent's."""
        self._free = deque()
        self.breaker = Breaker()


class Topology:
    """All servers of a URL. While one is away, a thread probes it, so no request has to wait for the probes."""

    def __init__(
        self, connector: Connector, probe: Callable[[Node], None], hook: Callable[[Transition], None] | None
    ) -> None:
        self.connector = connector
        self.clustered = connector.url.kind == "cluster"
        self._probe = probe
        self._hook = hook
        self.origin = Node(connector, None)
        """The server, if there is only one; for a cluster, a node without an address, used to find the nodes."""
        self._nodes: dict[Address, Node] = {None: self.origin}
        self._prober: threading.Thread | None = None
        self._closed = threading.Event()
        self._probing = threading.Lock()

    def all(self) -> list[Node]:
        """Return all servers that have states."""
        return [self.at(address) for address in self.connector.slots.addresses()] if self.clustered else [self.origin]

    def at(self, address: Address) -> Node:
        """Return the server at an address."""
        node = self._nodes.get(address)
        return node if node is not None else self._nodes.setdefault(address, Node(self.connector, address))

    def node_for(self, subject: bytes) -> Node:
        """Return the server that has a subject's states; the origin, if the nodes of the cluster are not known yet."""
        if not self.clustered:
            return self.origin
        address = self.connector.slots.address_of(slot_of(subject))
        return self.origin if address is None else self.at(address)

    def ready_for(self, subject: bytes) -> Node:
        """Like `node_for`, but find the nodes of the cluster first if needed, and raise `Away` if it is away."""
        node = self.node_for(subject)
        if node.breaker.open:
            raise Away(f"{node.name} is away")
        if self.clustered and node is self.origin:
            self.find()
            node = self.known_for(subject)
        return node

    def find(self) -> None:
        """Find the nodes of a cluster."""
        began = time.monotonic()
        try:
            self.connector.find_nodes(began + self.connector.patience(self.origin.breaker.troubled))
        except FAILURES as error:
            self.failed(self.origin, error, began)
            raise

    def known_for(self, subject: bytes) -> Node:
        """Like `node_for`, after `find`."""
        node = self.node_for(subject)
        if self.clustered and node is self.origin:
            raise Away("no node of the cluster serves this slot")
        return node

    def exchange(self, command: Command) -> Any:  # noqa: ANN401
        """Send a command, and return its reply."""
        began = time.monotonic()
        node = self.ready_for(command.subject)
        for _ in range(MOST_HOPS):
            try:
                reply = node.ask(command.encode(), 1 + command.asking, began)[-1]
            except FAILURES as error:
                self.failed(node, error, began)
                raise
            if command.understands(reply):
                self.succeeded(node)
                return reply
            node = self.redirect(node, command, reply)
        raise Away(f"{node.name} redirected a command too many times")

    def redirect(self, node: Node, command: Command, reply: object) -> Node:
        """Return the server to ask after an error that means that nothing was run; raise any other error."""
        if not isinstance(reply, Exception):
            node.hang_up()
            reply = Away(f"{node.name} does not answer like a Redis or Valkey server")
        error = understood(reply)
        if isinstance(error, NoScriptError) and not command.whole:
            command.whole = True
        elif isinstance(error, MovedError):
            command.asking = False
            address = told(error, node.address)
            self.connector.slots.move(error.slot_id, address)
            node = self.at(address)
        elif isinstance(error, AskError):
            command.asking = True
            node = self.at(told(error, node.address))
        elif isinstance(error, ReadOnlyError) and not command.turned:
            command.turned = True
            node.hang_up()
        else:
            if not isinstance(error, TryAgainError):  # a slot that is being moved: the node is not at fault
                self.failed(node, error)
            raise error
        return node

    def succeeded(self, node: Node) -> None:
        """Note that the server answered."""
        if node.breaker.troubled:
            node.breaker.succeeded()

    def failed(self, node: Node, error: BaseException, began: float | None = None) -> None:
        """Note that the server did not answer, or replied with an error, to a command that began at `began`."""
        if node.breaker.failed(0.0 if began is None else time.monotonic() - began):
            self._tell(Transition(node.name, False, f"{type(error).__name__}: {error}"))
            node.hang_up()
            with self._probing:
                if self._closed.is_set():  # the store is in use again, and its old thread is ending
                    self._closed, self._prober = threading.Event(), None
                if self._prober is None:
                    self._prober = threading.Thread(target=self._ask_again, name="headgate-probe", daemon=True)
                    self._prober.start()

    def _ask_again(self) -> None:
        """Probe until all servers are back: soon at first, then less often, at random times in each process."""
        pause, closed = FIRST_PROBE, self._closed
        while away := self._away():
            if closed.wait(pause * random.uniform(0.5, 1.0)):  # noqa: S311 - chance, not secrecy
                return
            pause = min(pause * 1.5, LONGEST_PROBE)
            for node in away:
                try:
                    reason = self._try(node)
                except FAILURES:
                    continue
                except Exception:
                    log.exception("probing %s failed", node.name)
                    continue
                if closed.is_set():
                    node.hang_up()
                    return
                node.breaker.close()
                self._tell(Transition(node.name, True, reason))

    def _away(self) -> list[Node]:
        """Return the servers that are away; if there are none, the calling thread stops probing."""
        with self._probing:
            away = [node for node in list(self._nodes.values()) if node.breaker.open]
            if not away and self._prober is threading.current_thread():
                self._prober = None
            return away

    def _try(self, node: Node) -> str:
        """Return the reason why this server is no longer away, or raise the failure of the probe."""
        if self.clustered:
            self.connector.find_nodes(time.monotonic() + self.connector.timeouts.connect)
            if node is self.origin or node.address not in self.connector.slots.addresses():
                return "other nodes of the cluster serve its slots"
        self._probe(node)
        return "a probe passed"

    def _tell(self, transition: Transition) -> None:
        level = logging.WARNING if not transition.available else logging.INFO
        log.log(level, "%s is %s: %s", transition.server, "back" if transition.available else "away", transition.reason)
        if self._hook is not None:
            try:
                self._hook(transition)
            except Exception:
                log.exception("the on_transition hook failed")

    def forget(self) -> None:
        """Start anew after a fork, without sockets, locks and threads of the parent."""
        self.connector.forget()
        self._prober = None
        self._closed = threading.Event()
        self._probing = threading.Lock()
        for node in self._nodes.values():
            node.forget()

    def close(self) -> None:
        """Close all free connections and stop probing."""
        self._closed.set()
        for node in list(self._nodes.values()):
            node.hang_up()
            node.breaker.close()  # no probe is left to close it


def server_time(node: Node) -> int:
    """Return the server's time in microseconds since the epoch."""
    seconds, micros = node.command(b"TIME")
    return int(seconds) * SECOND + int(micros)
