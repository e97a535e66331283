"""Other processes that hold permits, and a witness, apart from limiters, of how many are held at once."""

from __future__ import annotations

import fcntl
import logging
import os
import random
import shutil
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple, Self

from headgate import Limiter, StoreError
from headgate.engine import Permit
from headgate.stores.shared import SharedStore
from tests.support.processes import CONTEXT
from tests.support.servers import wait_until

PATIENCE = 20.0
"""Seconds after which a process that does not answer hangs."""


class Holder:
    """Another process with a limiter of its own, which does what it is told: `tell` calls a method of `_Hands`."""

    def __init__(self, url: str, limits: str, **options: Any) -> None:
        self._orders, theirs = CONTEXT.Pipe()
        self.process = CONTEXT.Process(target=_obey, args=(theirs, url, limits, options), daemon=True)
        self.process.start()
        theirs.close()
        self.pid = self.process.pid or 0

    def tell(self, verb: str, *arguments: Any) -> Any:
        self._orders.send((verb, *arguments))
        assert self._orders.poll(PATIENCE), f"{verb}: no answer"
        return self._orders.recv()

    def take(self, count: int = 1, key: str = "k", cost: int = 1) -> int:
        """Return how many of `count` permits it was given."""
        given = self.tell("take", count, key, cost)
        assert isinstance(given, int)
        return given

    def stop(self) -> None:
        """It stands still, and lives."""
        os.kill(self.pid, signal.SIGSTOP)
        wait_until(lambda: is_stopped(self.pid), "the process is stopped")

    def go_on(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def exit(self) -> None:
        """As a program ends that has forgotten what it holds."""
        self._orders.send(("exit",))
        self.process.join(PATIENCE)
        assert self.process.exitcode == 0

    def kill(self) -> None:
        self.process.kill()
        self.process.join(PATIENCE)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        self._orders.close()


def is_stopped(pid: int) -> bool:
    """By what the kernel says of it; its name may contain anything."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


class _Hands:
    """What a holder does."""

    def __init__(self, url: str, limits: str, options: dict[str, Any]) -> None:
        self.limiter = Limiter(limits, store=url, **{"on_error": "raise", **options})
        self.held: list[Permit] = []
        self.lines: list[str] = []
        log = logging.Handler()
        log.emit = lambda record: self.lines.append(record.getMessage())  # type: ignore[method-assign]
        logging.getLogger("headgate").addHandler(log)

    def take(self, count: int, key: str, cost: int) -> int:
        given = [permit for _ in range(count) if (permit := self.limiter.permit(key, cost))]
        self.held += given
        return len(given)

    def release(self) -> list[bool]:
        """Of everything that it holds: whether it was ended now."""
        ended, self.held = [permit.release() for permit in self.held], []
        return ended

    def own(self, key: str) -> list[bool]:
        """Of everything that is in flight: whether this process holds it."""
        return [each.own for each in self.limiter.holders(key)]

    def said(self) -> list[str]:
        return self.lines

    def fork(self, count: int) -> tuple[int, int]:
        """A child that tries to end its parent's permits, takes some of its own, and lives until it is killed."""
        reads, writes = os.pipe()
        child = os.fork()
        if not child:
            with suppress(BaseException):
                self.release()
                os.write(writes, b"%d" % self.take(count, "k", 1))
                time.sleep(PATIENCE)
            os._exit(1)
        os.close(writes)
        with os.fdopen(reads, "rb", buffering=0) as answer:
            return child, int(answer.read(9))


def _obey(orders: Connection, url: str, limits: str, options: dict[str, Any]) -> None:
    hands = _Hands(url, limits, options)
    with suppress(EOFError):  # whoever gave the orders is gone
        while (order := orders.recv()) != ("exit",):
            verb, *arguments = order
            orders.send(getattr(hands, verb)(*arguments))


class Witness:
    """A file with a byte for every unit that may be held at once. Who holds a permit holds as many, by locks of the
    kernel's; who finds too few free has seen more held than there may be.

    These locks end when a process dies, before the one by which a shared store knows that it lives: they are of the
    kind that goes with the process's descriptors, and that one goes with the last reference to the open file.
    """

    def __init__(self, path: Path, most: int) -> None:
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        self._most = most

    def enter(self, units: int) -> list[int]:
        """The bytes that were free, as many as asked for, or fewer. One process looks at a time: while it does, bytes
        only become free, so none is missed."""
        taken: list[int] = []
        fcntl.lockf(self._fd, fcntl.LOCK_EX, 1, self._most)
        for byte in range(self._most):
            if len(taken) < units:
                with suppress(BlockingIOError, PermissionError):
                    fcntl.lockf(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, byte)
                    taken.append(byte)
        fcntl.lockf(self._fd, fcntl.LOCK_UN, 1, self._most)
        return taken

    def leave(self, taken: list[int]) -> None:
        for byte in taken:
            fcntl.lockf(self._fd, fcntl.LOCK_UN, 1, byte)


class _Terms(NamedTuple):
    """The arguments of a crowd, for each of its workers."""

    url: str
    limits: str
    path: Path
    most: int
    longest: float
    forks: float


class Crowd:
    """Processes that take and give back permits of one key all the time, under the eyes of a witness."""

    def __init__(
        self, url: str, limits: str, path: Path, most: int, places: int, longest: float = 0.002, forks: float = 0.0
    ) -> None:
        """`most`: units that may be held at once. `places`: workers there will ever be. `longest`: seconds that a
        permit is held. `forks`: how often a worker forks while it holds one."""
        self._terms = _Terms(url, limits, path, most, longest, forks)
        self._counts = CONTEXT.Array("q", 2 * places, lock=False)
        self._place = 0
        self.end = 0.0
        self.workers: list[Any] = []

    def start(self, count: int, seconds: float, least: int = 1) -> None:
        """`least`: permits that each worker gets, also when the time is over."""
        self.end, self._least = time.monotonic() + seconds, least
        self.workers = [self._another() for _ in range(count)]

    def replace(self, number: int) -> None:
        """Kill a worker, wherever it is, and start another."""
        self.workers[number].kill()
        self.workers[number].join(PATIENCE)
        self.workers[number] = self._another()

    def _another(self) -> Any:
        arguments = (self._terms, self.end, self._least, self._counts, self._place)
        worker = CONTEXT.Process(target=_take_turns, args=arguments, daemon=True)
        self._place += 1
        worker.start()
        return worker

    def join(self) -> None:
        for worker in self.workers:
            worker.join(self.end - time.monotonic() + PATIENCE)
            assert worker.exitcode == 0

    def wait_for(self, more: int) -> None:
        """Return when this number of further permits was given."""
        before = sum(self.admitted)
        wait_until(lambda: sum(self.admitted) >= before + more, f"{more} more permits are given", PATIENCE)

    @property
    def admitted(self) -> list[int]:
        return list(self._counts[: 2 * self._place : 2])

    @property
    def violations(self) -> int:
        """How often the witness has seen too many."""
        return sum(self._counts[1::2])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for worker in self.workers:
            worker.kill()
            worker.join(PATIENCE)


def _take_turns(terms: _Terms, end: float, least: int, counts: Any, place: int) -> None:
    """Take and give back permits until the end; a permit that cannot be decided exactly is refused."""
    limiter = Limiter(terms.limits, store=terms.url, on_error="deny")
    witness, chance = Witness(terms.path, terms.most), random.Random(place)

    def turn(fork: bool) -> None:
        cost = chance.choice((1, 1, 1, 2))
        permit = limiter.permit("k", cost, chance.choice((0, 0.02)))
        if not permit:
            return
        seen = witness.enter(cost)
        counts[2 * place] += 1
        if len(seen) < cost:
            counts[2 * place + 1] += 1
        if fork and not os.fork():
            permit.release()  # it is the parent's
            for _ in range(20):
                if time.monotonic() < end:
                    turn(False)
            os._exit(0)
        time.sleep(chance.random() * terms.longest)
        witness.leave(seen)
        permit.release()

    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # children are not waited for
    late = end + PATIENCE / 2  # a busy machine may start a worker after the end: each has its turns all the same
    while (now := time.monotonic()) < end or (now < late and counts[2 * place] < least):
        turn(chance.random() < terms.forks)


def damage(folder: Path, rounds: int, seed: int) -> None:
    """Write at random into a table of permits, and use it: an error or an answer, and never a crash."""
    chance = random.Random(seed)
    for number in range(rounds):
        shutil.rmtree(folder, ignore_errors=True)
        text = ("3 in flight", "40 in flight", "3 in flight; 9/minute by fixed-window")[number % 3]
        limiter = _use(folder, text)
        for file in folder.glob("*.table"):
            with file.open("r+b") as table:
                for _ in range(chance.choice((1, 8, 200))):
                    table.seek(4096 + 8 * chance.randrange((file.stat().st_size - 4096) // 8))
                    table.write(chance.choice((chance.randbytes(8), b"\xff" * 8, bytes(8), b"\x01" + bytes(7))))
        with suppress(StoreError):
            _use(folder, text)
            limiter.release(limiter.hit("key 1"))


def _use(folder: Path, text: str) -> Limiter:
    """Everything that can be done with permits."""
    limiter = Limiter(text, store=SharedStore(str(folder), max_keys=24), on_error="deny")
    kept = [limiter.permit(f"key {number % 9}", number % 4) for number in range(12)]
    verbs: tuple[Callable[[str], object], ...] = (limiter.peek, limiter.holders, limiter.hit, limiter.reset)
    for number, permit in enumerate(kept[::2]):
        limiter.take_up_to(f"key {number}", 5)
        permit.release()
        verbs[number % 4](f"key {number}")
    limiter.refund(limiter.hit("key 2", 2), 1)
    return limiter
