"""The addresses of servers, asked from sentinels or from the nodes of a cluster.

The steps are generators that yield a question and are sent its reply or thrown its failure, so threads and event loops
run the same steps. A server that answered is asked first the next time, and one that did not is asked last: a dead
sentinel takes its share of the time only once.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable
from typing import Any, Final, NamedTuple, TypeVar

from headgate.stores.redis.library import FAILURES, ResponseError

T = TypeVar("T")
SLOTS: Final = 16_384
DOWN: Final = {b"s_down", b"o_down"}
Address = tuple[str, int]


class Question(NamedTuple):
    """A question to one server."""

    address: Address
    words: tuple[str, ...]
    shares: int
    """The number of servers that share the time left: this one, those that may be asked next, and the one found."""


Steps = Generator[Question, Any, T]


class NoTimeLeft(TimeoutError):
    """The time ended before the other servers were asked, so nothing is known of them."""


class _Order:
    """Servers in the order in which they are asked."""

    def __init__(self, addresses: Iterable[Address]) -> None:
        self.addresses = list(dict.fromkeys(addresses))

    def questions(self, *words: str) -> list[Question]:
        return [Question(address, words, len(self.addresses) - at + 1) for at, address in enumerate(self.addresses)]

    def first(self, address: Address) -> None:
        self.addresses = [address, *(each for each in self.addresses if each != address)]

    def last(self, address: Address) -> None:
        self.addresses = [*(each for each in self.addresses if each != address), address]


class Sentinels:
    """The sentinels, which watch a primary and know its address."""

    def __init__(self, hosts: Iterable[Address], service: str) -> None:
        self._service = service
        self._order = _Order(hosts)
        self._told: Address | None = None

    def find(self) -> Steps[Address]:
        """Return the primary's address; the last known one while no sentinel answers, since only they replace it."""
        why: BaseException | None = None
        silent = True
        for question in self._order.questions("SENTINEL", "MASTER", self._service):
            try:
                primary = _announced((yield question))
            except ResponseError as error:
                why, silent = error, False
            except NoTimeLeft:
                break
            except FAILURES as error:
                why = error
                self._order.last(question.address)
            else:
                silent = False
                if primary is not None:
                    self._order.first(question.address)
                    self._told = primary
                    return primary
        if silent and self._told is not None:
            return self._told
        raise ConnectionError(f"no sentinel knows the primary of {self._service}") from why


def _announced(state: Any) -> Address | None:  # noqa: ANN401
    """Return the primary that a sentinel reports, or None if the sentinel takes it to be down."""
    try:
        fields = dict(zip(state[::2], state[1::2], strict=True))
        flags = set(fields[b"flags"].split(b","))
        address = fields[b"ip"].decode(), int(fields[b"port"])
    except (AttributeError, KeyError, TypeError, ValueError) as nonsense:
        raise ConnectionError("a sentinel sent a reply that cannot be read") from nonsense
    return address if b"master" in flags and not flags & DOWN else None


class Slots:
    """The node that serves each slot of a cluster, as far as it is known."""

    def __init__(self, hosts: Iterable[Address]) -> None:
        self._hosts = tuple(hosts)
        self._order = _Order(self._hosts)
        self._served: list[Address | None] = []
        self._moved: dict[int, Address] = {}
        """Slots that servers have redirected since the nodes were found."""

    def find(self) -> Steps[None]:
        """Ask one node after another until one knows the nodes of all slots."""
        best: list[Address | None] = []
        why: BaseException | None = None
        known: set[Address] = set()
        for question in self._order.questions("CLUSTER", "SLOTS"):
            try:
                served, nodes = _served((yield question), question.address[0])
            except NoTimeLeft:
                break
            except FAILURES as error:
                why = error
                self._order.last(question.address)
                continue
            known |= nodes
            if not best or served.count(None) < best.count(None):
                best = served
                self._order.first(question.address)
            if None not in best:
                break
        if not known:
            raise ConnectionError(f"no node of the cluster knows which node serves which slot: {why}") from why
        self._served, self._moved = best, {}
        kept = [address for address in self._order.addresses if address in known or address in self._hosts]
        self._order = _Order([*kept, *sorted(known)])

    def address_of(self, slot: int) -> Address | None:
        """Return the address of the node that serves a slot."""
        moved = self._moved.get(slot) if self._moved else None
        return moved or (self._served[slot] if self._served else None)

    def addresses(self) -> list[Address]:
        """Return the addresses of all nodes that serve slots."""
        return sorted({address for address in self._served if address} | set(self._moved.values()))

    def move(self, slot: int, address: Address) -> None:
        """Note that a slot has moved to another address."""
        self._moved[slot] = address


def _served(ranges: Any, asked: str) -> tuple[list[Address | None], set[Address]]:  # noqa: ANN401
    """Return the primary of each slot, and all nodes. A node that reports no host has the host that was asked."""
    served: list[Address | None] = [None] * SLOTS
    known: set[Address] = set()
    try:
        for start, end, *nodes in ranges:
            addresses = [((node[0] or b"").decode() or asked, int(node[1])) for node in nodes]
            served[start : end + 1] = addresses[:1] * (end + 1 - start)
            known.update(addresses)
        if len(served) != SLOTS:
            raise ValueError(f"{len(served)} slots")
    except (AttributeError, IndexError, TypeError, ValueError) as nonsense:
        raise ConnectionError("a node of the cluster sent a reply that cannot be read") from nonsense
    return served, known
