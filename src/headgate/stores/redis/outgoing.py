"""Commands of threads on their way to a server, and the replies to them."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from functools import lru_cache
from typing import Any


class Outgoing:
    """A command of one thread, which that thread or another one sends."""

    __slots__ = ("began", "data", "error", "gate", "leads", "length", "missing", "reply")

    gate: threading.Lock
    """Held until another thread has an answer, or lets this thread send."""

    def __init__(self, data: bytes, began: float, replies: int = 1, length: int = 0) -> None:
        self.data = data
        self.began = began
        self.missing = replies
        """The number of replies that are not read yet; the last one is the answer."""
        self.length = length
        """The length of the one reply, if it is a string of known length; otherwise 0."""
        self.reply: Any = None
        self.error: BaseException | None = None
        """The reason why another thread, which sent this command, did not get its reply."""
        self.leads = False
        """Whether this thread was woken to send."""


def split(data: bytes, batch: Sequence[Outgoing]) -> bool:
    """Split data into the replies to commands; False if it is not exactly the strings that are expected."""
    at, found = 0, []
    for each in batch:
        head = _head(each.length)
        if not each.length or not data.startswith(head, at):
            return False
        start = at + len(head)
        end = start + each.length
        found.append(data[start:end])
        at = end + 2
    if at != len(data):
        return False
    for each, reply in zip(batch, found, strict=True):
        each.reply, each.missing = reply, 0
    return True


@lru_cache(64)
def _head(length: int) -> bytes:
    """Return the bytes before a string of this length."""
    return b"$%d\r\n" % length
