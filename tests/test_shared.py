"""The shared store: one exact limit for every process of the host, whatever happens to any of them."""

from __future__ import annotations

import json
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from headgate import Limiter, StoreError
from headgate.engine import NATIVE
from headgate.stores.shared import SharedStore
from headgate.stores.shared_file import HEADER_WORDS, PARTICIPANTS, STRIPES, WORD, read_head
from headgate.testing import ManualClock
from tests import sharing

pytestmark = pytest.mark.skipif(not NATIVE, reason="shared stores need the native engine")

KINDS = ["token-bucket", "fixed-window", "sliding-window", "sliding-window/60", "sliding-log"]
MANY = "{0}/4 weeks as a; {0}/3 weeks by fixed-window as b; {0}/4 weeks by sliding-log as c"
LIMITS = [*("{0}/4 weeks by " + kind for kind in KINDS), "{0}/4 weeks block 1h", MANY]


def shared(path: Path, text: str = "10/minute", clock: ManualClock | None = None, **options) -> Limiter:
    return Limiter(text, store=SharedStore(str(path), max_keys=1_000, clock=clock), **options)


def table_file(path: Path) -> Path:
    (file,) = path.glob("*.table")
    return file


def words_of(file: Path) -> memoryview:
    """A table's memory, to do to it what a dying process would."""
    import mmap

    with file.open("r+b") as opened:
        return memoryview(mmap.mmap(opened.fileno(), 0)).cast("q")


@pytest.mark.parametrize("text", LIMITS)
def test_processes_admit_exactly_the_limit(tmp_path, text):
    """Four processes, one key: what all of them together admit is the limit, one for one."""
    done = sharing.hammer(f"shared://{tmp_path}/store?max_keys=1000", text.format(5_000), processes=4, hits=5_000)
    assert sum(each["admitted"] for each in done) == 5_000


@pytest.mark.parametrize("text", LIMITS)
def test_kills_cost_at_most_the_request_in_flight(tmp_path, text):
    """Workers are killed while all hammer one key: the others go on, and the books are off by a kill's request each."""
    sharing.storm(tmp_path, text.format(400_000), 400_000, kills=8, seconds=1.5, seed=1)


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
def test_a_change_begun_by_a_dead_holder_is_undone(tmp_path, text):
    """Half-written states come back from the journal as they were."""
    path = tmp_path / "store"
    clock = ManualClock(1e9)
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
    assert sum(roll) == 5


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
    threads = [
        threading.Thread(target=lambda: admitted.append(sum(limiter.hit("k").allowed for _ in range(3_000))))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    elsewhere = sharing.hammer(url, text, processes=2, hits=3_000)
    for thread in threads:
        thread.join()
    assert sum(admitted) + sum(each["admitted"] for each in elsewhere) == 6_000


def test_a_removed_store_is_made_anew_for_all(tmp_path):
    """Workers whose directory is removed find each other again in a new one, within a second of their clock."""
    clock = ManualClock(1e9)
    path = tmp_path / "store"
    one, two = (shared(path, "10/minute by fixed-window", clock, on_error="raise") for _ in range(2))
    one.hit("k", 6)
    two.hit("k", 4)
    shutil.rmtree(path)
    clock.advance(1.0)
    assert one.hit("k", 6).remaining == 4
    assert two.hit("k", 4).remaining == 0
    assert not one.hit("k")
    table_file(path).unlink()
    clock.advance(1.0)
    assert two.hit("k", 7).remaining == 3
    assert one.hit("k", 3).remaining == 0


def test_a_store_that_cannot_be_made_anew_follows_the_policy(tmp_path):
    """The path is taken by a file: degraded answers, and exact ones when it is free again."""
    clock = ManualClock(1e9)
    path = tmp_path / "store"
    limiter = shared(path, "10/minute", clock, on_error="deny")
    limiter.hit("k")
    shutil.rmtree(path)
    path.write_text("in the way")
    clock.advance(1.0)
    assert [limiter.hit("k").degraded, limiter.peek("k").degraded] == [True, True]
    limiter.refund("k", 1)
    with pytest.raises(StoreError, match="files of the shared store are gone"):
        limiter.reset("k")
    path.unlink()
    assert limiter.hit("k").remaining == 9


def test_processes_that_create_at_once_make_one_table(tmp_path):
    """Six processes open a store that is not there yet: one secret, one table, one budget."""
    done = sharing.hammer(f"shared://{tmp_path}/store?max_keys=1000", "50/4 weeks", processes=6, hits=20)
    assert sum(each["admitted"] for each in done) == 50
    assert sorted(file.name for file in (tmp_path / "store").iterdir() if file.suffix != ".table") == ["meta", "roll"]
    table_file(tmp_path / "store")


def test_files_that_outlived_a_reboot_are_started_anew(tmp_path):
    """The boot in `meta` is another one: states of another clock are not believed."""
    path = tmp_path / "store"
    shared(path, "10/minute").hit("k", 10)
    meta = bytearray((path / "meta").read_bytes())
    meta[16] ^= 1
    (path / "meta").write_bytes(meta)
    assert shared(path, "10/minute").hit("k").remaining == 9


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (lambda file: file.write_bytes(file.read_bytes()[:100]), "cut short"),
        (lambda file: file.write_bytes(file.read_bytes()[:-8]), "cut short"),
        (lambda file: file.write_bytes(b""), "cut short"),
        (lambda file: file.write_bytes(b"x" * 10_000), "not a table of headgate"),
        (lambda file: file.write_bytes(file.read_bytes()[:8] + b"\x09" + file.read_bytes()[9:]), "has layout 9"),
        (lambda file: file.write_bytes(file.read_bytes()[:40] + bytes(8) + file.read_bytes()[48:]), "makes no sense"),
        (lambda file: (file.unlink(), file.mkdir()), "directory"),
        (lambda file: (file.unlink(), file.symlink_to("/etc/hostname")), "symbolic link"),
    ],
)
def test_a_damaged_table_is_named(tmp_path, damage, says):
    """Truncated, foreign, of another layout or not a file at all: an error that names it."""
    path = tmp_path / "store"
    shared(path).hit("k")
    file = table_file(path)
    damage(file)
    with pytest.raises(StoreError, match=says) as error:
        shared(path)
    assert str(file) in str(error.value)


def test_directories_that_are_not_ours_are_refused(tmp_path):
    """A symbolic link, a file, a directory that others may write, a parent that is not there."""
    (tmp_path / "real").mkdir(mode=0o700)
    (tmp_path / "link").symlink_to(tmp_path / "real")
    (tmp_path / "file").write_text("")
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    for name, says in (
        ("link", "link|directory"),
        ("file", "directory"),
        ("open", "written by others"),
        ("no/where", "such"),
    ):
        with pytest.raises(StoreError, match=says):
            shared(tmp_path / name)
    SharedStore(str(tmp_path / "open"), mode=0o777)


@pytest.mark.skipif(not os.path.ismount("/dev/shm"), reason="no tmpfs of known size here")
def test_a_full_file_system_is_an_error_not_a_crash():
    """What cannot be allocated is said when the limit is first used, by name and size."""
    path = Path(f"/dev/shm/headgate-test-{os.getpid()}")
    try:
        store = SharedStore(str(path), max_keys=1_000_000)
        with pytest.raises(StoreError, match=r"cannot make .*\.table.* no space is left"):
            Limiter("100000/4 weeks by sliding-log", store=store)
        assert sorted(file.name for file in path.iterdir()) == ["meta", "roll"]
    finally:
        shutil.rmtree(path)


def test_a_foreign_meta_is_refused(tmp_path):
    """A directory that holds something else is not taken for a store."""
    (tmp_path / "store").mkdir(mode=0o700)
    (tmp_path / "store" / "meta").write_text("somebody's notes")
    with pytest.raises(StoreError, match="not headgate's"):
        shared(tmp_path / "store")


def test_memory_written_by_something_else_never_crashes(tmp_path):
    """Random bytes anywhere in the file: an error or an answer, in a process that lives to tell."""
    assert fuzz(tmp_path, 400, seed=1)["rounds"] == 400


def fuzz(folder: Path, rounds: int, seed: int) -> dict[str, int]:
    code = (Path(__file__).parent / "fuzz_shared.py").read_text()
    ran = subprocess.run(
        [sys.executable, "-c", code, str(folder / "fuzz"), str(rounds), str(seed)],
        capture_output=True,
        text=True,
        check=True,
    )
    return dict(json.loads(ran.stdout))


def test_the_pure_engine_says_that_it_cannot():
    """Without the native engine there is an error that says so, not a store that does not share."""
    code = "from headgate import Limiter; Limiter('1/s', store='shared:///dev/shm/headgate-never')"
    ran = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "HEADGATE_PURE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 1
    assert "need the native engine" in ran.stderr


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


def test_bounds_and_size(tmp_path):
    """As many bytes a key as in memory; a table is allocated whole; keys beyond the bound displace the least used."""
    limiter = shared(tmp_path / "store", "10/hour", ManualClock(1e9))
    store = limiter.store
    for n in range(20):
        limiter.hit(f"heavy:{n}", 10)
    for n in range(5_000):
        assert limiter.hit(f"flood:{n}")
    assert not any(limiter.hit(f"heavy:{n}") for n in range(20))
    assert store.keys() <= 1_344
    assert store.evictions() > 3_000
    slots = 1_336 * 2 * WORD
    assert store.bytes() == table_file(tmp_path / "store").stat().st_size == slots + WORD * (HEADER_WORDS + STRIPES * 9)


def test_a_child_that_cannot_take_part_answers_degraded(tmp_path):
    """Every byte of the roll is held by others: a forked child decides nothing by itself, and never without a lock."""
    path = tmp_path / "store"
    limiter = shared(path, "10/minute by fixed-window", on_error="deny")
    limiter.hit("k")
    roll = os.open(path / "roll", os.O_RDWR)
    try:
        lock_bytes(roll, 1, PARTICIPANTS - 1)
        child = os.fork()
        if child == 0:
            os._exit(0 if limiter.hit("k").degraded and limiter.hit("k").degraded else 1)
        assert os.waitpid(child, 0)[1] == 0
    finally:
        os.close(roll)
    assert limiter.hit("k").remaining == 8


def lock_bytes(fd: int, start: int, length: int) -> None:
    """Hold so many bytes of a file for as long as it is open."""
    import fcntl
    import struct

    fcntl.fcntl(fd, fcntl.F_OFD_SETLK, struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, start, length, 0))


def test_an_attach_that_failed_is_tried_again(tmp_path):
    """A removed table comes back damaged: degraded answers for as long as it is, not a count apart from the others."""
    clock = ManualClock(1e9)
    path = tmp_path / "store"
    limiter = shared(path, "10/minute by fixed-window", clock, on_error="deny")
    limiter.hit("k", 4)
    file = table_file(path)
    file.unlink()
    file.write_bytes(b"x" * 5_000)
    clock.advance(1.0)
    assert [limiter.hit("k").degraded for _ in range(3)] == [True] * 3
    file.unlink()
    assert limiter.hit("k").remaining == 9


def test_opening_does_not_wait_for_ever(tmp_path, monkeypatch):
    """A process stopped while it opens the store keeps the directory locked: an error says so."""
    import fcntl

    monkeypatch.setattr("headgate.stores.shared.PATIENCE", 0.05)
    (tmp_path / "store").mkdir(mode=0o700)
    folder = os.open(tmp_path / "store", os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        with pytest.raises(StoreError, match="keeps .* locked while it opens it"):
            shared(tmp_path / "store")
    finally:
        os.close(folder)
    assert shared(tmp_path / "store").hit("k")


def test_removing_the_files_is_removing_the_store(tmp_path):
    """`rm DIR/*` leaves the directory: the workers still find each other in what is made anew there."""
    clock = ManualClock(1e9)
    path = tmp_path / "store"
    one, two = (shared(path, "10/minute by fixed-window", clock, on_error="raise") for _ in range(2))
    one.hit("k", 10)
    for file in path.iterdir():
        file.unlink()
    clock.advance(1.0)
    assert (one.hit("k", 6).remaining, two.hit("k", 4).remaining) == (4, 0)
    shutil.rmtree(path)
    assert Limiter("7/hour", store=one.store).hit("k").remaining == 6


def test_clear_reaches_limits_that_only_others_use(tmp_path):
    """A namespace is forgotten whole, whoever opened its tables."""
    clock = ManualClock(1e9)
    one, two = (shared(tmp_path / "store", text, clock) for text in ("10/minute", "10/hour by sliding-log"))
    one.hit("k", 10)
    two.hit("k", 10)
    SharedStore(str(tmp_path / "store"), clock=clock).clear("default")
    assert (one.peek("k", 0).remaining, two.peek("k", 0).remaining) == (10, 10)


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root can become somebody else")
def test_users_share_what_its_mode_allows():
    """A store of mode 0777 serves another user; one of mode 0700 is refused to him."""
    for mode, status in ((0o777, 0), (0o700, 1)):
        path = Path(f"/tmp/headgate-test-{os.getpid()}")
        try:
            limiter = Limiter("10/minute", store=SharedStore(str(path), max_keys=100, mode=mode))
            limiter.hit("k", 4)
            child = os.fork()
            if child == 0:
                os.setgroups([])
                os.setgid(65534)
                os.setuid(65534)
                try:
                    theirs = Limiter("10/minute", store=SharedStore(str(path), max_keys=100, mode=mode))
                    os._exit(0 if theirs.hit("k", 4).remaining == 2 else 2)
                except StoreError:
                    os._exit(1)
                finally:
                    os._exit(3)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == status
        finally:
            shutil.rmtree(path)
