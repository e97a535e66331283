"""Threads that ask one server at the same moment: few of them send, each for all that wait.

Python runs one thread at a time, and each write and each read of a socket hands the interpreter over. With many threads
and a near server, these hand-overs take longer than the decisions. A thread then waits while another one sends, and the
next thread that sends takes along the commands of all that wait: one write and one read, after which each is woken with
its own reply. This is flat combining (Hendler, Incze, Shavit and Tzafrir, SPAA 2010), except that a thread sends only
once, together with its own command, and then lets the next thread send: none works for others without end.

No lock guards the queue. Each step is one atomic operation of a set or a deque, so no signal handler, finalizer or
forked child can meet a lock that is held. A command belongs to the thread that has taken it out of the queue.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence
from time import monotonic
from typing import Any, Final, Protocol

from headgate.stores.redis.connections import Timeouts
from headgate.stores.redis.outgoing import Outgoing

FEW: Final = 4
"""The number of threads that send at once, each over a connection of its own, before any thread waits."""
WORK: Final = 25e-6
"""Seconds of the interpreter for one decision. If all threads together need less than one round trip takes, none waits:
the server is far, and the interpreter is free while the replies are on their way."""
MANY: Final = 4
"""If one write has more commands, many threads wait: from then on, one thread sends at a time."""
CALM: Final = 8
"""This number of smaller writes in a row shows that few threads wait again."""
MOST: Final = 64
"""The most commands in one write."""
LONGEST_WAIT: Final = 0.01
"""The most seconds that a thread waits for others before it sends; also at most a quarter of the deadline."""
GRACE: Final = 0.25
"""Seconds after the deadline for a thread that sends for others and that the system does not let run."""
FORGETTING: Final = 1.02
"""The factor by which the shortest round trip grows with each write, so that old ones are forgotten."""


class SharedError(ConnectionError):
    """The reply was lost to another thread, which had sent this command too, and which has counted the failure."""


class Connecting(Protocol):
    """The part of a server that is used here."""

    def connection(self, began: float) -> tuple[Any, float]:
        """Return a connection, and the start of the answer's time."""
        ...

    def converse(self, connection: Any, batch: Sequence[Outgoing]) -> None:  # noqa: ANN401
        """Send commands and read their replies."""
        ...


class Senders:
    """The threads that send to one server, and the commands that wait for one of them."""

    def __init__(self, server: Connecting, timeouts: Timeouts) -> None:
        self._server = server
        self._answer = timeouts.answer
        self._longest_wait = min(LONGEST_WAIT, timeouts.answer / 4)
        self._longest_send = timeouts.connect + timeouts.answer + GRACE
        self.sending: set[Outgoing] = set()
        self.waiting: deque[Outgoing] = deque()
        self.most = FEW
        self._small = CALM
        self._trip = timeouts.answer
        """The seconds of the shortest round trip of late."""

    def ask(self, own: Outgoing) -> Any:  # noqa: ANN401
        """Return the reply to a command, which this thread or another one sends."""
        if self._may_send() or self._wait(own):
            return self._lead(own)
        if own.missing:
            raise SharedError(f"sent with others: {type(own.error).__name__}: {own.error}") from own.error
        return own.reply

    def _may_send(self) -> bool:
        count = len(self.sending)
        return count < self.most or (count + len(self.waiting)) * WORK < self._trip

    def _wait(self, own: Outgoing) -> bool:
        """Wait until another thread has the reply, or this thread has to send: whether it has to."""
        wait = own.began + self._longest_wait - monotonic()
        if wait <= 0:
            return True
        own.gate = threading.Lock()
        own.gate.acquire()
        try:
            self.waiting.append(own)
            # The last sender may have gone before the command was in the queue: then no thread would wake this one.
            if self._may_send() and self._withdraw(own):
                return True
            if own.gate.acquire(timeout=wait):
                return own.leads
            if self._withdraw(own):
                self._drop_lost()
                return True
            # Another thread has taken the command, and is done by its own deadline, which is the earlier one.
            if own.gate.acquire(timeout=max(0.0, own.began + self._answer - monotonic()) + GRACE):
                return own.leads
            raise TimeoutError("no answer within the deadline")
        except BaseException:
            self._withdraw(own)
            self._leave(own)
            raise

    def _withdraw(self, own: Outgoing) -> bool:
        """Take a command back out of the queue; False if another thread has taken it."""
        try:
            self.waiting.remove(own)
        except ValueError:
            return False
        return True

    def _lead(self, own: Outgoing) -> Any:  # noqa: ANN401
        """Send a command, and with it all that wait."""
        batch = [own]
        try:
            self.sending.add(own)
            connection, began = self._server.connection(own.began)
            if self.waiting:  # looked at only now, since connecting may take long
                began = self._take_waiting(batch, began)
            connection.due = began + self._answer
            start = monotonic()
            self._server.converse(connection, batch)
            took, longest = monotonic() - start, FORGETTING * self._trip
            self._trip = took if took < longest else longest
        except BaseException as error:
            for other in batch[1:]:
                other.error = error
            raise
        finally:
            for other in batch[1:]:
                other.gate.release()
            if self._small < CALM or len(batch) > MANY:
                self.count(len(batch))
            self._leave(own)
        return own.reply

    def _take_waiting(self, batch: list[Outgoing], began: float) -> float:
        """Add the commands that wait, and return the earliest start: its deadline is the deadline of all.

        None is added if this thread has much less time left than the others.
        """
        if monotonic() - began > 2 * self._longest_wait:
            return began
        while len(batch) < MOST:
            try:
                batch.append(self.waiting.popleft())
            except IndexError:
                break
        return min([began, *(other.began for other in batch[1:])])

    def count(self, size: int) -> None:
        """Set the number of threads that may send at once, by the number of commands in one write."""
        self._small = 0 if size > MANY else self._small + 1
        self.most = FEW if self._small >= CALM else 1

    def _leave(self, own: Outgoing) -> None:
        """Let other threads send in place of this one."""
        self.sending.discard(own)
        while self.waiting and len(self.sending) < self.most:
            try:
                following = self.waiting.popleft()
            except IndexError:
                return
            self.sending.add(following)
            following.leads = True
            following.gate.release()

    def _drop_lost(self) -> None:
        """Forget a thread that an interrupt hit between two steps, so that it could not leave."""
        now = monotonic()
        for each in self.sending.copy():  # one step, also without the GIL
            if each.began + self._longest_send < now:
                self._leave(each)
