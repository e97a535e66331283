"""Limits compiled to the bytes of a command and to the layout of its reply."""

from __future__ import annotations

import struct
from functools import lru_cache
from itertools import chain
from typing import Any, Final

from headgate.engine import PEEK, RESERVE, TAKE, UP_TO, Decision
from headgate.layout import ANSWER_FIELDS, WORD
from headgate.limit import PAUSING, Limit
from headgate.stores.contract import Keys
from headgate.stores.redis.names import Names
from headgate.stores.redis.scripts import AHEAD, GIVE, HEARTBEAT, RENEW, RESET, Script, script, sent_params, shape_of

REMEMBERED: Final = 64
"""The most costs whose packed bytes are kept."""


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
        self._turns = b"$%d\r\n%%b%bt\r\n" % (length + len(self.suffixes[0]) + 1, self.suffixes[0])
        self._words = len(limits) * ANSWER_FIELDS
        self._reads = {
            mode: struct.Struct(f"<{self._words + {UP_TO: 1, AHEAD: 3}.get(mode, 0)}q")
            for mode in (TAKE, PEEK, UP_TO, RESERVE, AHEAD)
        }
        self.lends = all(limit.step.LENDS and not limit.block_us for limit in limits)
        """Whether a cost that does not fit now can be lent."""
        self.pauses = limits == (PAUSING,)
        """Whether a decision pauses its keys."""
        self.in_flight = tuple(at for at, limit in enumerate(limits) if limit.in_flight)
        """The indexes of the limits in flight, whose charges must be given back."""
        self._packed: dict[tuple[int, ...], bytes] = {}
        self._scripts: dict[int, Script] = {}

    def script(self, mode: int) -> Script:
        """Return the script to run."""
        found = self._scripts.get(mode)
        if found is None:
            found = self._scripts[mode] = script(self._shapes, mode)
        return found

    def subjects(self, keys: Keys) -> bytes | tuple[bytes, ...]:
        """Return the prefix of the names of the keys."""
        return self.names.subject(keys) if isinstance(keys, str) else tuple(map(self.names.subject, keys))

    def keys(self, subjects: bytes | tuple[bytes, ...]) -> bytes:
        """Return the keys of one group, encoded for the protocol."""
        if isinstance(subjects, bytes):
            return self._same % ((subjects,) * self.width)
        return b"".join(end % subject for subject, ends in zip(subjects, self._endings, strict=True) for end in ends)

    def turns(self, subject: bytes) -> bytes:
        """Return the key of the queue of turns, encoded for the protocol."""
        return self._turns % subject

    def argument(self, costs: tuple[int, ...]) -> bytes:
        """Return the parameters and costs of one group, encoded for the protocol."""
        found = self._packed.get(costs)
        if found is None:
            found = _bulk(*chain.from_iterable((*own, cost) for own, cost in zip(self._numbers, costs, strict=True)))
            if len(self._packed) < REMEMBERED:
                self._packed[costs] = found
        return found

    def promise(self, costs: tuple[int, ...], wait: int) -> bytes:
        """Like `argument`, for a reservation: the last number is the longest wait."""
        each = zip(self._numbers, costs, strict=True)
        return _bulk(*chain.from_iterable((*own, cost) for own, cost in each), wait)

    def ahead(self, cost: int, most: int, turn: tuple[int, ...]) -> bytes:
        """Like `argument`, for a cost and tokens ahead, `most` in all, and the numbers of a turn."""
        return _bulk(*chain.from_iterable((*own, cost) for own in self._numbers), most, *turn)

    def back(self, amounts: tuple[int, ...], marks: tuple[tuple[int, int] | None, ...]) -> bytes:
        """Like `argument`, for giving back; no mark means charged now."""
        each = zip(self._numbers, amounts, marks, strict=True)
        return _bulk(*chain.from_iterable((*own, amount, *(mark or (-1, 0))) for own, amount, mark in each))

    def renewal(self, mark: tuple[int, int]) -> bytes:
        """Like `argument`, for a permit's new lease."""
        return _bulk(self.limits[0].period_us, *mark)

    def size(self, mode: int) -> int:
        """Return the bytes of one group in a reply; 0 if the reply is a number."""
        if mode == RENEW:
            return WORD
        reads = self._reads.get(mode)
        return 0 if reads is None else reads.size

    def read(self, reply: Any, index: int, keys: Keys, costs: tuple[int, ...], mode: int) -> Decision:  # noqa: ANN401
        """Return the decision of one group; `index` is its number in the reply."""
        reads = self._reads[mode]
        words = list(reads.unpack_from(reply, WORD + index * reads.size))
        if mode in (UP_TO, AHEAD):
            costs = (words[0],) * len(self.limits)
            del words[: len(words) - self._words]
        return Decision(self.limits, keys, costs, words, charged=mode != PEEK)

    def read_turn(self, reply: bytes, index: int) -> tuple[int, bool]:
        """Return the microseconds until the next turn, and whether many processes ask about the key."""
        wait, crowded = struct.unpack_from("<2q", reply, 2 * WORD + index * self._reads[AHEAD].size)
        return wait, crowded > 0


def instant(reply: bytes) -> int:
    """Return the server's instant of the decision in a reply."""
    now: int = struct.unpack_from("<q", reply)[0]
    return now


def read_left(reply: bytes) -> list[int]:
    """Return the number of units of each permit that are still in flight, from the reply to a renewal."""
    return memoryview(reply)[WORD:].cast("q").tolist()


def _bulk(*numbers: int) -> bytes:
    return b"$%d\r\n%b\r\n" % (len(numbers) * WORD, struct.pack(f"<{len(numbers)}q", *numbers))


class Command:
    """Groups of one script that are sent together: one EVALSHA."""

    __slots__ = (
        "arguments", "asking", "groups", "keys", "mode", "now", "script", "size", "subject", "turned", "whole", "width",
    )  # fmt: skip

    def __init__(
        self, compiled: CompiledLimits, mode: int, subject: bytes, keys: bytes, argument: bytes, now: int | None
    ) -> None:
        self.script = compiled.script(mode)
        self.width = compiled.width + (mode == AHEAD)
        self.size = compiled.size(mode)
        self.mode = mode
        self.subject = subject
        self.groups = 1
        self.keys = [keys]
        self.arguments = [argument]
        self.now = now
        self.whole = False
        """Send the source: the server does not have the script."""
        self.asking = False
        """Send ASKING first: the slot is being moved."""
        self.turned = False
        """A replica has already refused this command once."""

    def understands(self, reply: object) -> bool:
        """Whether a reply fits this command; any other reply does not come from a Redis or Valkey server."""
        length = self.length
        return isinstance(reply, bytes) and len(reply) == length if length else isinstance(reply, int)

    @property
    def length(self) -> int:
        """The length of the reply; 0 if the reply is a number."""
        return WORD + self.groups * self.size if self.size else 0

    def encode(self) -> bytes:
        """Return the bytes to send."""
        extra = self.groups + (self.now is not None)
        head = _head(self.script, self.width * self.groups, extra, self.whole)
        if self.groups == 1 and self.now is None and not self.asking:
            return head + self.keys[0] + self.arguments[0]
        asking = b"*1\r\n$6\r\nASKING\r\n" if self.asking else b""
        now = b"" if self.now is None else b"$%d\r\n%d\r\n" % (len(b"%d" % self.now), self.now)
        return b"".join((asking, head, *self.keys, *self.arguments, now))


@lru_cache(256)
def _head(script: Script, keys: int, extra: int, whole: bool) -> bytes:
    """Return the bytes of a command before its keys; `extra` words follow the keys."""
    name, text = (b"EVAL", script.source) if whole else (b"EVALSHA", script.sha)
    count = b"%d" % keys
    return b"*%d\r\n$%d\r\n%b\r\n$%d\r\n%b\r\n$%d\r\n%b\r\n" % (
        3 + keys + extra, len(name), name, len(text), text, len(count), count,
    )  # fmt: skip


__all__ = ["AHEAD", "GIVE", "HEARTBEAT", "RENEW", "RESET", "Command", "CompiledLimits", "Keys", "instant", "read_left"]
