"""Where servers are: asked of sentinels, or of the nodes of a cluster.

The steps are generators that yield a question and are sent its reply or thrown its failure, so that threads and event
loops carry them the same way. A server that answered is asked first the next time, and one that did not, last: one dead
sentinel costs its share of the time once.
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
    """To be asked of one server."""

    address: Address
    words: tuple[str, ...]
    shares: int
    """How many must do with the time that is left: this server, those that may be asked after it, and the one found."""


Steps = Generator[Question, Any, T]


class NoTimeLeft(TimeoutError):
    """The rest were not asked, so nothing is known of them."""


class _Order:
    """Servers, in the order in which they are asked."""

    def __init__(self, addresses: Iterable[Address]) -> None:
        self.addresses = list(dict.fromkeys(addresses))

    def questions(self, *words: str) -> list[Question]:
        return [Question(address, words, len(self.addresses) - at + 1) for at, address in enumerate(self.addresses)]

    def first(self, address: Address) -> None:
        self.addresses = [address, *(each for each in self.addresses if each != address)]

    def last(self, address: Address) -> None:
        self.addresses = [*(each for each in self.addresses if each != address), address]


class Sentinels:
    """Who watch a primary, and say where it is."""

    def __init__(self, hosts: Iterable[Address], service: str) -> None:
        self._service = service
        self._order = _Order(hosts)
        self._told: Address | None = None

    def find(self) -> Steps[Address]:
        """Where the primary is. While no sentinel answers it is where it was: without them it is not replaced."""
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
        raise ConnectionError(f"no sentinel says where the primary of {self._service} is") from why


def _announced(state: Any) -> Address | None:  # noqa: ANN401
    """The primary a sentinel tells of, unless it finds that one down."""
    try:
        fields = dict(zip(state[::2], state[1::2], strict=True))
        flags = set(fields[b"flags"].split(b","))
        address = fields[b"ip"].decode(), int(fields[b"port"])
    except (AttributeError, KeyError, TypeError, ValueError) as nonsense:
        raise ConnectionError("a sentinel answers what no sentinel does") from nonsense
    return address if b"master" in flags and not flags & DOWN else None


class Slots:
    """Which node of a cluster serves which slot, as far as is known."""

    def __init__(self, hosts: Iterable[Address]) -> None:
        self._hosts = tuple(hosts)
        self._order = _Order(self._hosts)
        self._served: list[Address | None] = []
        self._moved: dict[int, Address] = {}
        """Slots that servers said are elsewhere, since the nodes were found."""

    def find(self) -> Steps[None]:
        """Ask one node after another, until one knows who serves every slot."""
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
            raise ConnectionError(f"no node of the cluster says who serves what: {why}") from why
        self._served, self._moved = best, {}
        kept = [address for address in self._order.addresses if address in known or address in self._hosts]
        self._order = _Order([*kept, *sorted(known)])

    def address_of(self, slot: int) -> Address | None:
        """Who serves a slot."""
        moved = self._moved.get(slot) if self._moved else None
        return moved or (self._served[slot] if self._served else None)

    def addresses(self) -> list[Address]:
        """Every node that serves slots."""
        return sorted({address for address in self._served if address} | set(self._moved.values()))

    def move(self, slot: int, address: Address) -> None:
        """A slot lives elsewhere now."""
        self._moved[slot] = address


def _served(ranges: Any, asked: str) -> tuple[list[Address | None], set[Address]]:  # noqa: ANN401
    """The primary of each slot, and every node that is told of. A node that has no other name is where it was asked."""
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
        raise ConnectionError("a node answers what no node of a cluster does") from nonsense
    return served, known
