"""The servers of a store: which server has which keys, which servers are away, and the free connections."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from headgate.stores.breaker import Prober, Transition
from headgate.stores.health import Health
from headgate.stores.redis.compiled import Command
from headgate.stores.redis.connect import Connector, redirected_to, slot_of
from headgate.stores.redis.library import (
    FAILURES,
    AskError,
    MovedError,
    NoScriptError,
    ReadOnlyError,
    TryAgainError,
    understood,
)  # fmt: skip
from headgate.stores.redis.node import MOST_HOPS, Address, Away, Node
from headgate.stores.redis.senders import SharedError


class Topology:
    """All servers of a URL."""

    def __init__(
        self, connector: Connector, probe: Callable[[Node], None], hook: Callable[[Transition], None] | None
    ) -> None:
        self.connector = connector
        self.clustered = connector.url.kind == "cluster"
        self._probe = probe
        self.origin = Node(connector, None)
        """The server, if there is only one; for a cluster, a node without an address, used to find the nodes."""
        self._nodes: dict[Address, Node] = {None: self.origin}
        self._prober = Prober(self._nodes.values, self._try, FAILURES, hook)
        self.health = Health()
        """Counts failures, and the time that commands take."""

    @property
    def up(self) -> bool:
        """Whether no server is known to be away."""
        return not any(node.breaker.open for node in list(self._nodes.values()))

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
                reply = node.exchange(command, began)
            except SharedError:
                raise
            except FAILURES as error:
                self.failed(node, error, began)
                raise
            if command.understands(reply):
                self.succeeded(node)
                self.health.took(time.monotonic() - began)
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
            address = redirected_to(error, node.address)
            self.connector.slots.move(error.slot_id, address)
            node = self.at(address)
        elif isinstance(error, AskError):
            command.asking = True
            node = self.at(redirected_to(error, node.address))
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
        self.health.failed()
        self._prober.failed(node, error, began)

    def _try(self, node: Node) -> str:
        """Return the reason why this server is no longer away, or raise the failure of the probe."""
        if self.clustered:
            self.connector.find_nodes(time.monotonic() + self.connector.timeouts.connect)
            if node is self.origin or node.address not in self.connector.slots.addresses():
                return "other nodes of the cluster serve its slots"
        self._probe(node)
        return "a probe passed"

    def forget(self) -> None:
        """Start again after a fork, without sockets, locks and threads of the parent."""
        self.connector.forget()
        self._prober.forget()
        self.health = Health()
        for node in self._nodes.values():
            node.forget()

    def close(self) -> None:
        """Close all free connections and stop probing."""
        self._prober.close()
        for node in list(self._nodes.values()):
            node.hang_up()
            node.breaker.close()  # no probe is left to close it
