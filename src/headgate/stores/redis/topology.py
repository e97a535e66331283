"""The servers of a store: who serves what, which of them is away, and the connections that are free."""

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
"""Times a command is sent: each time but the last, a server said that it had not run it."""
MOST_FREE: Final = 64
LONG_IDLE: Final = 1.0
"""Seconds after which a connection may have been closed by the other side."""
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
        """Free connections, and since when each is."""

    def ask(self, data: bytes, replies: int = 1, began: float | None = None) -> list[Any]:
        """Send, and read so many replies; an error that the server answers is a reply too.

        The time runs from when the caller began.
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
            raise Away(f"{self.name} answers what no such server does") from nonsense
        except BaseException:
            # Whatever is still to come would be taken for the answer to the next question.
            connection.disconnect()
            raise
        if len(self._free) < MOST_FREE:
            self._free.append((connection, time.monotonic()))
        else:
            connection.disconnect()
        return got

    def _idle(self) -> Any:  # noqa: ANN401
        """A free connection; one that was idle for a while is looked at first, for the server may have closed it."""
        while True:
            try:
                connection, since = self._free.pop()
            except IndexError:
                return None
            if time.monotonic() - since < LONG_IDLE or not connection.hung_up():
                return connection
            connection.disconnect()

    def _connect(self, began: float) -> tuple[Any, float]:
        """A new connection, and when the time for the answer begins: after a failure, connecting is part of it."""
        # While the breaker is open only a probe connects, and nobody waits for it.
        hurried = self.breaker.troubled and not self.breaker.open
        try:
            connection = self._connector.connect(self.address, began + self._connector.patience(hurried))
        except ValueError as nonsense:
            raise Away(f"{self.name} answers what no such server does") from nonsense
        return connection, began if hurried else time.monotonic()

    def command(self, *words: bytes | int) -> Any:  # noqa: ANN401
        """One plain command."""
        texts = [b"%d" % word if isinstance(word, int) else word for word in words]
        reply = self.ask(b"*%d\r\n" % len(texts) + b"".join(b"$%d\r\n%b\r\n" % (len(text), text) for text in texts))[0]
        if isinstance(reply, Exception):
            raise reply
        return reply

    def hang_up(self) -> None:
        """Close what is free: the next question finds the server anew."""
        while self._free:
            try:
                self._free.pop()[0].disconnect()
            except IndexError:
                return

    def forget(self) -> None:
        """After a fork: what is connected belongs to the parent."""
        self._free = deque()
        self.breaker = Breaker()


class Topology:
    """Every server of a URL. While one is away a thread asks whether it is back; no request pays for that."""

    def __init__(
        self, connector: Connector, probe: Callable[[Node], None], hook: Callable[[Transition], None] | None
    ) -> None:
        self.connector = connector
        self.clustered = connector.url.kind == "cluster"
        self._probe = probe
        self._hook = hook
        self.origin = Node(connector, None)
        """The server, if there is one; of a cluster, what finds its nodes."""
        self._nodes: dict[Address, Node] = {None: self.origin}
        self._prober: threading.Thread | None = None
        self._closed = threading.Event()
        self._probing = threading.Lock()

    def all(self) -> list[Node]:
        """Every server that holds states."""
        return [self.at(address) for address in self.connector.slots.addresses()] if self.clustered else [self.origin]

    def at(self, address: Address) -> Node:
        """The server of an address."""
        node = self._nodes.get(address)
        return node if node is not None else self._nodes.setdefault(address, Node(self.connector, address))

    def node_for(self, subject: bytes) -> Node:
        """The server that has a subject's states; the origin stands for a cluster that is not known yet."""
        if not self.clustered:
            return self.origin
        address = self.connector.slots.address_of(slot_of(subject))
        return self.origin if address is None else self.at(address)

    def ready_for(self, subject: bytes) -> Node:
        """As `node_for`; finds the nodes of the cluster first where that was not done, and raises while it is away."""
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
        """As `node_for`, after `find`."""
        node = self.node_for(subject)
        if self.clustered and node is self.origin:
            raise Away("no node of the cluster serves this slot")
        return node

    def exchange(self, command: Command) -> Any:  # noqa: ANN401
        """The reply to a command."""
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
        raise Away(f"{node.name} keeps sending us elsewhere")

    def redirect(self, node: Node, command: Command, reply: object) -> Node:
        """Whom to ask after this error, which says that nothing was run; any other is raised."""
        if not isinstance(reply, Exception):
            node.hang_up()
            reply = Away(f"{node.name} answers what no such server does")
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
            if not isinstance(error, TryAgainError):  # a slot that is half way to another node: the node is well
                self.failed(node, error)
            raise error
        return node

    def succeeded(self, node: Node) -> None:
        """The server answered."""
        if node.breaker.troubled:
            node.breaker.succeeded()

    def failed(self, node: Node, error: BaseException, began: float | None = None) -> None:
        """The server did not answer, or answered that it cannot, to a caller that began then."""
        if node.breaker.failed(0.0 if began is None else time.monotonic() - began):
            self._tell(Transition(node.name, False, f"{type(error).__name__}: {error}"))
            node.hang_up()
            with self._probing:
                if self._closed.is_set():  # and is used again; a thread that was told to end does not count
                    self._closed, self._prober = threading.Event(), None
                if self._prober is None:
                    self._prober = threading.Thread(target=self._ask_again, name="headgate-probe", daemon=True)
                    self._prober.start()

    def _ask_again(self) -> None:
        """Probe until every server is back: soon at first, then once a second, never all processes at one instant."""
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
        """The servers that are away; when there are none, whoever probes has nothing more to do."""
        with self._probing:
            away = [node for node in list(self._nodes.values()) if node.breaker.open]
            if not away and self._prober is threading.current_thread():
                self._prober = None
            return away

    def _try(self, node: Node) -> str:
        """Why nobody has to wait for this server any more; or a failure."""
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
        """After a fork: no socket, lock or thread of the parent is used."""
        self.connector.forget()
        self._prober = None
        self._closed = threading.Event()
        self._probing = threading.Lock()
        for node in self._nodes.values():
            node.forget()

    def close(self) -> None:
        """Close every free connection and stop probing."""
        self._closed.set()
        for node in list(self._nodes.values()):
            node.hang_up()
            node.breaker.close()  # nobody is left to close it


def server_time(node: Node) -> int:
    """Microseconds since the epoch, as the server tells them."""
    seconds, micros = node.command(b"TIME")
    return int(seconds) * SECOND + int(micros)
