"""Limits compiled to what is sent and how the reply is read."""

from __future__ import annotations

import struct
from itertools import chain
from typing import Any, Final

from headgate.engine import Decision
from headgate.engine.modes import PEEK, RESERVE, TAKE, UP_TO
from headgate.layout import ANSWER_FIELDS, WORD
from headgate.limit import Limit
from headgate.stores.contract import Keys
from headgate.stores.redis.names import Names
from headgate.stores.redis.scripts import GIVE, HEARTBEAT, RENEW, RESET, Script, script, sent_params, shape_of

REMEMBERED: Final = 64
"""Costs whose bytes are not packed again."""


class CompiledLimits:
    """Limits of one decision, in their order."""

    def __init__(self, limits: tuple[Limit, ...], names: Names) -> None:
        self.limits = limits
        self.names = names
        self._shapes = tuple(map(shape_of, limits))
        self._numbers = tuple(map(sent_params, limits))
        endings = [[names.suffix(limit)] + [names.suffix(limit) + b"b"] * (limit.block_us > 0) for limit in limits]
        length = len(names.subject(""))
        self._endings = tuple(tuple(b"$%d\r\n%%b%b\r\n" % (length + len(end), end) for end in each) for each in endings)
        self.suffixes = tuple(chain.from_iterable(endings))
        self.width = len(self.suffixes)
        self._same = b"".join(chain.from_iterable(self._endings))
        self._words = len(limits) * ANSWER_FIELDS
        self._reads = {
            mode: struct.Struct(f"<{self._words + (mode == UP_TO)}q") for mode in (TAKE, PEEK, UP_TO, RESERVE)
        }
        self.lends = all(limit.step.LENDS and not limit.block_us for limit in limits)
        """What does not fit now can be promised."""
        self.in_flight = tuple(at for at, limit in enumerate(limits) if limit.in_flight)
        """The indexes of those whose charges are to be given back."""
        self._packed: dict[tuple[int, ...], bytes] = {}

    def script(self, mode: int) -> Script:
        """The code to run."""
        return script(self._shapes, mode)

    def subjects(self, keys: Keys) -> bytes | tuple[bytes, ...]:
        """What the names of the keys begin with."""
        return self.names.subject(keys) if isinstance(keys, str) else tuple(map(self.names.subject, keys))

    def keys(self, subjects: bytes | tuple[bytes, ...]) -> bytes:
        """The keys of one group, as the protocol wants them."""
        if isinstance(subjects, bytes):
            return self._same % ((subjects,) * self.width)
        return b"".join(end % subject for subject, ends in zip(subjects, self._endings, strict=True) for end in ends)

    def argument(self, costs: tuple[int, ...]) -> bytes:
        """The parameters and costs of one group, as the protocol wants them."""
        found = self._packed.get(costs)
        if found is None:
            found = _bulk(*chain.from_iterable((*own, cost) for own, cost in zip(self._numbers, costs, strict=True)))
            if len(self._packed) < REMEMBERED:
                self._packed[costs] = found
        return found

    def promise(self, costs: tuple[int, ...], wait: int) -> bytes:
        """As `argument`, for a reservation: how long the caller would wait is the last number."""
        each = zip(self._numbers, costs, strict=True)
        return _bulk(*chain.from_iterable((*own, cost) for own, cost in each), wait)

    def back(self, amounts: tuple[int, ...], marks: tuple[tuple[int, int] | None, ...]) -> bytes:
        """As `argument`, for giving back; no mark means charged now."""
        each = zip(self._numbers, amounts, marks, strict=True)
        return _bulk(*chain.from_iterable((*own, amount, *(mark or (-1, 0))) for own, amount, mark in each))

    def renewal(self, mark: tuple[int, int]) -> bytes:
        """As `argument`, for a permit's new lease."""
        return _bulk(self.limits[0].period_us, *mark)

    def size(self, mode: int) -> int:
        """Bytes of one group in a reply; 0 where a number is replied."""
        if mode == RENEW:
            return WORD
        reads = self._reads.get(mode)
        return 0 if reads is None else reads.size

    def read(self, reply: Any, index: int, keys: Keys, costs: tuple[int, ...], mode: int) -> Decision:  # noqa: ANN401
        """The decision of one group; `index` is its number in the reply."""
        reads = self._reads[mode]
        words = list(reads.unpack_from(reply, WORD + index * reads.size))
        if mode == UP_TO:
            costs = (words.pop(0),) * len(self.limits)
        return Decision(self.limits, keys, costs, words, charged=mode != PEEK)


def instant(reply: bytes) -> int:
    """The server's time at which a reply was decided."""
    now: int = struct.unpack_from("<q", reply)[0]
    return now


def read_left(reply: bytes) -> list[int]:
    """How many units of each permit are still out, after a renewal."""
    return memoryview(reply)[WORD:].cast("q").tolist()


def _bulk(*numbers: int) -> bytes:
    return b"$%d\r\n%b\r\n" % (len(numbers) * WORD, struct.pack(f"<{len(numbers)}q", *numbers))


class Command:
    """Groups of one script that travel together: one EVALSHA."""

    __slots__ = (
        "arguments", "asking", "groups", "keys", "mode", "now", "script", "size", "subject", "turned", "whole", "width",
    )  # fmt: skip

    def __init__(
        self, compiled: CompiledLimits, mode: int, subject: bytes, keys: bytes, argument: bytes, now: int | None
    ) -> None:
        self.script = compiled.script(mode)
        self.width = compiled.width
        self.size = compiled.size(mode)
        self.mode = mode
        self.subject = subject
        self.groups = 1
        self.keys = [keys]
        self.arguments = [argument]
        self.now = now
        self.whole = False
        """Send the source: the server has forgotten it."""
        self.asking = False
        """Send ASKING first: the slot is on its way."""
        self.turned = False
        """Was sent to a replica by mistake once."""

    def understands(self, reply: object) -> bool:
        """Whether a reply is one to this command: anything else comes from something that is no such server."""
        if not self.size:
            return isinstance(reply, int)
        return isinstance(reply, bytes) and len(reply) == WORD + self.groups * self.size

    def encode(self) -> bytes:
        """The bytes to send."""
        count = b"%d" % (self.width * self.groups)
        head = b"$4\r\nEVAL\r\n$%d\r\n%b" % (len(self.script.source), self.script.source)
        if not self.whole:
            head = b"$7\r\nEVALSHA\r\n$40\r\n" + self.script.sha
        now = b"" if self.now is None else b"$%d\r\n%d\r\n" % (len(b"%d" % self.now), self.now)
        words = 3 + self.width * self.groups + self.groups + (self.now is not None)
        asking = b"*1\r\n$6\r\nASKING\r\n" if self.asking else b""
        return b"%b*%d\r\n%b\r\n$%d\r\n%b\r\n%b%b%b" % (
            asking, words, head, len(count), count, b"".join(self.keys), b"".join(self.arguments), now,
        )  # fmt: skip


__all__ = ["GIVE", "HEARTBEAT", "RENEW", "RESET", "Command", "CompiledLimits", "Keys", "instant", "read_left"]
