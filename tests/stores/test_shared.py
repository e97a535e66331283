"""The shared store: one exact limit for every process of the host, whatever happens to any of them."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import threading
import time
from pathlib import Path

import pytest

from headgate import Limiter, StoreError
from headgate.engine import NATIVE
from headgate.layout import HEADER_WORDS, PARTICIPANTS, STRIPES
from headgate.stores.shared.file import read_head
from headgate.testing import ManualClock
from tests.support import sharing, side_by_side
from tests.support.flight import in_child
from tests.support.sharing import shared, table_file, words_of

pytestmark = pytest.mark.skipif(not NATIVE, reason="shared stores need the native engine")

KINDS = ["token-bucket", "fixed-window", "sliding-window", "sliding-window/60", "sliding-log"]
MANY = "{0}/4 weeks as a; {0}/3 weeks by fixed-window as b; {0}/4 weeks by sliding-log as c"
LIMITS = [*("{0}/4 weeks by " + kind for kind in KINDS), "{0}/4 weeks block 1h", MANY]


@pytest.mark.parametrize("text", LIMITS)
def test_processes_admit_exactly_the_limit(tmp_path, text):
    """Four processes, one key: what all of them together admit is the limit, one for one."""
    done = sharing.hammer(f"shared://{tmp_path}/store?max_keys=100", text.format(5_000), processes=4, hits=5_000)
    assert sum(each["admitted"] for each in done) == 5_000


@pytest.mark.parametrize("text", LIMITS)  # `make soak` kills two hundred
def test_kills_cost_at_most_the_request_in_flight(tmp_path, text):
    """Workers are killed while all hammer one key: the others go on, and the books are off by a kill's request each."""
    sharing.storm(tmp_path, text.format(400_000), 400_000, kills=2, seconds=0.1, seed=1)


def test_one_user_code_two_stores(tmp_path):
    """Nothing but the URL changes; a second limiter on the same path shares the budget."""
    first = Limiter("10/minute", store=f"shared://{tmp_path}/store")
    second = Limiter("10/minute", store=f"shared://{tmp_path}/store")
    assert first.hit("k", 4).remaining == 6
    assert second.hit("k", 4).remaining == 2
    assert not first.hit("k", 4)


class Holder:
    """Another process that takes part, and a way to let it seem to hold every stripe of a table."""

    def __init__(self, path: Path, text: str) -> None:
        self.process = sharing.start("linger", f"shared://{path}?max_keys=1000", text)
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "ready\n"
        roll = memoryview((path / "roll").read_bytes()).cast("q")
        self.number = max(n for n in range(PARTICIPANTS) if roll[n])
        self.signature = (self.number + 1) << 32 | roll[self.number]
        self.words = words_of(table_file(path))

    def hold(self) -> None:
        for stripe in range(STRIPES):
            self.words[HEADER_WORDS + stripe * 8] = self.signature

    def let_go(self) -> None:
        for stripe in range(STRIPES):
            self.words[HEADER_WORDS + stripe * 8] = 0

    def die(self) -> None:
        self.process.kill()
        self.process.communicate()


@pytest.mark.parametrize("text", ["10/minute by fixed-window", "10/minute by sliding-log", "10/minute block 1m"])
def test_a_stopped_holder_blocks_nobody(tmp_path, text):
    """A live process that stands still with a lock: others answer degraded by policy, and exactly once it goes on."""
    clock = ManualClock(time.time())
    path = tmp_path / "store"
    policies = {policy: shared(path, text, clock, on_error=policy) for policy in ("local", "allow", "deny", "raise")}
    policies["deny"].hit("k", 4)
    holder = Holder(path, text)
    holder.hold()
    local, allow, deny = (policies[policy].hit("k", 3) for policy in ("local", "allow", "deny"))
    assert [(each.allowed, each.degraded) for each in (local, allow, deny)] == [
        (True, True),
        (True, True),
        (False, True),
    ]
    assert (local.remaining, policies["local"].peek("k", 8).allowed) == (7, False)
    assert policies["local"].take_up_to("k", 20).granted == 7
    with pytest.raises(StoreError, match="cannot answer now"):
        policies["raise"].hit("k")
    holder.let_go()
    exact = [policies[policy].hit("k", 2) for policy in ("local", "allow", "deny")]
    assert [(each.remaining, each.degraded) for each in exact] == [(4, False), (2, False), (0, False)]
    holder.die()


@pytest.mark.parametrize("text", ["10/minute by fixed-window", "10/minute by sliding-log", "10/minute block 1m"])
def test_a_holder_that_lost_its_core_is_waited_for(tmp_path, text):
    """A lock that is held for 50 ms, as on a busy machine, costs no exactness: the others wait and count together."""
    path = tmp_path / "store"
    limiter = shared(path, text, ManualClock(time.time()))
    limiter.hit("k", 4)
    holder = Holder(path, text)
    holder.hold()
    core = threading.Timer(0.05, holder.let_go)
    core.start()
    decision = limiter.hit("k", 5)
    core.join()
    assert (decision.allowed, decision.degraded, decision.remaining) == (True, False, 1)
    holder.die()


@pytest.mark.parametrize("text", ["10/minute", "10/minute by fixed-window", "10/hour by sliding-log", MANY.format(10)])
def test_a_dead_holder_is_taken_over(tmp_path, text):
    """Its locks are nobody's: the next caller takes them and answers exactly, not degraded."""
    path = tmp_path / "store"
    limiter = shared(path, text, ManualClock(time.time()), on_error="raise")
    limiter.hit("k", 4)
    table = sorted(path.glob("*.table"))
    holder_text = text.split(";")[0]
    process = sharing.start("linger", f"shared://{path}?max_keys=1000", holder_text)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    roll = memoryview((path / "roll").read_bytes()).cast("q")
    number = max(n for n in range(PARTICIPANTS) if roll[n])
    process.kill()
    process.communicate()
    for file in table:
        words = words_of(file)
        for stripe in range(STRIPES):
            words[HEADER_WORDS + stripe * 8] = (number + 1) << 32 | roll[number]
    assert limiter.hit("k", 4).remaining == 2
    assert not limiter.hit("k", 4)
    assert limiter.hit("new").remaining == 9


@pytest.mark.parametrize("text", ["10/minute by fixed-window", "10/minute by sliding-window/6", "10/minute block 1m"])
def test_a_change_begun_by_a_dead_holder_is_undone(tmp_path, text, clock):
    """Half-written states come back from the journal as they were."""
    path = tmp_path / "store"
    limiter = shared(path, text, clock, on_error="raise")
    limiter.hit("k", 4)
    before = limiter.peek("k", 0).verdicts
    file = table_file(path)
    with file.open("rb") as opened:
        head = read_head(opened.fileno(), str(file))
    words = words_of(file)
    tags = HEADER_WORDS + STRIPES * (8 + head.journal)
    slot = next(n for n in range(head.sets * 8) if words[tags + n])
    stripe = (words[tags + slot] & 2**64 - 1) >> 58
    state = tags + head.sets * 8 + slot * head.stride
    journal = HEADER_WORDS + STRIPES * 8 + stripe * head.journal
    for n in range(head.journal):
        words[journal + n] = words[state + n]
        words[state + n] ^= 0x5555
    words[HEADER_WORDS + stripe * 8 + 2] = slot + 1
    words[HEADER_WORDS + stripe * 8] = 4096 << 32 | 77  # the signature of a participant that never was
    assert limiter.peek("k", 0).verdicts == before
    assert limiter.hit("k", 6)
    assert not limiter.hit("k")


def test_a_word_left_held_is_let_go(tmp_path):
    """A bucket whose worker died between taking and writing it keeps its count."""
    path = tmp_path / "store"
    limiter = shared(path, "10/minute", ManualClock(1e9), on_error="raise")
    limiter.hit("k", 4)
    words = words_of(table_file(path))
    with table_file(path).open("rb") as opened:
        head = read_head(opened.fileno(), "table")
    tags = HEADER_WORDS + STRIPES * (8 + head.journal)
    slot = next(n for n in range(head.sets * 8) if words[tags + n])
    words[tags + head.sets * 8 + slot] |= -(2**63)
    assert limiter.hit("k", 4).remaining == 2
    assert words[tags + head.sets * 8 + slot] > 0


def test_a_fork_takes_part_by_itself(tmp_path):
    """Used before and after a fork, by parent and child: one budget, and each holds its own byte of the roll."""
    limiter = shared(tmp_path / "store", "100/4 weeks by fixed-window", on_error="raise")
    limiter.hit("k", 10)
    children = []
    for _ in range(4):
        child = os.fork()
        if child == 0:
            try:
                os._exit(0 if limiter.hit("k", 10).allowed else 1)
            finally:
                os._exit(2)
        children.append(child)
    assert [os.waitpid(child, 0)[1] for child in children] == [0] * 4
    assert limiter.hit("k", 0).remaining == 50
    roll = memoryview((tmp_path / "store" / "roll").read_bytes()).cast("q")
    assert (sum(roll[:-1]), roll[-1]) == (5, 1)  # participants, tables


def hit_ten_times(url: str) -> int:
    return sum(Limiter("25/4 weeks", store=url).hit("k").allowed for _ in range(10))


def test_spawned_processes_share(tmp_path):
    """Processes with nothing in common but the path."""
    url = f"shared://{tmp_path}/store"
    Limiter("25/4 weeks", store=url).hit("k", 5)
    with multiprocessing.get_context("spawn").Pool(3) as pool:
        assert sum(pool.map(hit_ten_times, [url] * 3)) == 20


def test_threads_and_processes_together(tmp_path):
    """Four threads here and two processes elsewhere: exactly the limit."""
    url, text = f"shared://{tmp_path}/store?max_keys=1000", "6000/4 weeks by sliding-window"
    limiter = Limiter(text, store=url, on_error="deny")
    admitted: list[int] = []
    with side_by_side([lambda: admitted.append(sum(limiter.hit("k").allowed for _ in range(3_000)))] * 4):
        elsewhere = sharing.hammer(url, text, processes=2, hits=3_000)
    assert sum(admitted) + sum(each["admitted"] for each in elsewhere) == 6_000


def test_a_stopped_process_is_not_robbed(tmp_path):
    """SIGSTOP among hammering workers: the others go on, and in the end exactly the limit was admitted."""
    url, text = f"shared://{tmp_path}/store?max_keys=1000", "30000/4 weeks by fixed-window"
    workers = [sharing.start("hammer", url, text, "30000") for _ in range(3)]
    for worker in workers:
        assert worker.stdout is not None
        worker.stdout.readline()
    for worker in workers:
        assert worker.stdin is not None
        worker.stdin.write("go\n")
        worker.stdin.flush()
    for worker in workers * 5:
        worker.send_signal(signal.SIGSTOP)
        worker.send_signal(signal.SIGCONT)
    done = [json.loads(worker.communicate()[0]) for worker in workers]
    assert sum(each["admitted"] for each in done) == 30_000


def test_a_child_that_cannot_take_part_answers_degraded(tmp_path):
    """Every byte of the roll is held by others: a forked child decides nothing by itself, and never without a lock."""
    path = tmp_path / "store"
    limiter = shared(path, "10/minute by fixed-window", on_error="deny")
    limiter.hit("k")
    roll = os.open(path / "roll", os.O_RDWR)
    try:
        lock_bytes(roll, 1, PARTICIPANTS - 1)
        assert in_child(lambda: [limiter.hit("k").degraded for _ in range(2)]) == "[True, True]"
    finally:
        os.close(roll)
    assert limiter.hit("k").remaining == 8


def lock_bytes(fd: int, start: int, length: int) -> None:
    """Hold this number of bytes of a file for as long as it is open."""
    import fcntl
    import struct

    fcntl.fcntl(fd, fcntl.F_OFD_SETLK, struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, start, length, 0))
