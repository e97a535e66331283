"""The files of a shared store: how they are made, checked, removed and found again."""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from headgate import Limiter, StoreError
from headgate.engine import NATIVE
from headgate.layout import HEADER_WORDS, STRIPES, WORD
from headgate.stores.shared import SharedStore
from headgate.stores.shared.folder import Folder
from headgate.testing import ManualClock
from tests.support import sharing
from tests.support.sharing import fuzz, shared, table_file

pytestmark = pytest.mark.skipif(not NATIVE, reason="shared stores need the native engine")


def test_a_removed_store_is_made_anew_for_all(tmp_path, clock):
    """Workers whose directory is removed find each other again in a new one, within a second of their clock."""
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


def test_a_store_that_cannot_be_made_anew_follows_the_policy(tmp_path, clock):
    """The path is taken by a file: degraded answers, and exact ones when it is free again."""
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
    assert sorted(file.name for file in (tmp_path / "store").iterdir() if file.suffix != ".table") == [
        "lock",
        "meta",
        "roll",
    ]
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
        (lambda file: file.write_bytes(file.read_bytes()[:40] + bytes(8) + file.read_bytes()[48:]), "is not valid"),
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


@pytest.mark.skipif(not os.path.ismount("/dev/shm"), reason="no tmpfs of known size here")
def test_a_full_file_system_is_an_error_not_a_crash():
    """A file that cannot be allocated is told of when the limit is first used, by name and size."""
    path = Path(f"/dev/shm/headgate-test-{os.getpid()}")
    try:
        store = SharedStore(str(path), max_keys=900_000, max_bytes=2**40 - 1)
        with pytest.raises(StoreError, match=r"cannot make .*\.table.* no space is left"):
            Limiter("100000/4 weeks by sliding-log", store=store)
        assert sorted(file.name for file in path.iterdir()) == ["lock", "meta", "roll"]
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


@pytest.mark.parametrize(
    ("hidden", "pure", "says"),
    [
        ("", "1", "shared stores need the native engine, which is not here: install a C compiler and reinstall"),
        ("fcntl", "0", "a shared store needs Linux or macOS, and this system is linux: use memory:// for one process"),
        ("fcntl", "1", "a shared store needs Linux or macOS, and this system is linux: use memory:// for one process"),
    ],
    ids=["no engine", "no locks", "neither"],
)
@pytest.mark.parametrize(
    "opened",
    ["headgate.Limiter('1/s', store={!r})", "__import__('headgate.stores.shared').stores.shared.SharedStore({!r})"],
)
def test_where_nothing_can_be_shared_an_error_says_so(tmp_path, hidden, pure, says, opened):
    """Without the native engine, or on a system without file locks, as Windows is: not a store that does not share."""
    code = f"""
import sys
sys.modules[{hidden!r}] = None
import headgate
try:
    {opened.format(f"shared://{tmp_path}/never")}
except headgate.StoreError as error:
    print(error)
"""
    env = {**os.environ, "HEADGATE_PURE": pure}
    ran = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=False)
    assert says.replace("linux", sys.platform, 1) in ran.stdout, ran.stderr
    assert "redis://" in ran.stdout
    assert not (tmp_path / "never").exists()


def test_an_attach_that_failed_is_tried_again(tmp_path, clock):
    """A removed table comes back damaged: degraded answers for as long as it is, not a count apart from the others."""
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
    """A process stopped while it opens the store keeps it locked: an error says so."""
    monkeypatch.setattr("headgate.stores.shared.PATIENCE", 0.05)
    assert shared(tmp_path / "store").hit("k")
    with (tmp_path / "store" / "lock").open("r+") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(StoreError, match="keeps .* locked while it opens it"):
            shared(tmp_path / "store")
    assert shared(tmp_path / "store").hit("k")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_child_forked_while_the_store_is_locked_does_not_keep_it_so(tmp_path):
    """It has every open file of its parent, and lives on."""
    folder = Folder(str(tmp_path / "store"), 0o700)
    with folder.locked(0.0):
        child = os.fork()
        if child == 0:
            signal.pause()
            os._exit(0)
    try:
        with folder.locked(0.0):
            pass
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        folder.close()


def test_a_lock_that_was_removed_locks_nobody_out_and_lets_nobody_in(tmp_path, monkeypatch):
    """`rm DIR/*` while a process opens the store: the next one makes another lock, and that one counts."""
    monkeypatch.setattr("headgate.stores.shared.PATIENCE", 0.05)
    folder = Folder(str(tmp_path / "store"), 0o700)
    with folder.locked(0.0):
        (tmp_path / "store" / "lock").unlink()
        with folder.locked(0.0), pytest.raises(StoreError, match="locked"):
            shared(tmp_path / "store")
    assert shared(tmp_path / "store").hit("k")
    folder.close()


def test_what_a_killed_maker_left_half_built_is_removed_after_a_minute(tmp_path):
    """The next process that opens the store removes the old file; the young one may still be in the making."""
    path = tmp_path / "store"
    SharedStore(str(path))
    (path / "building-1-00").touch()
    (path / "building-2-00").touch()
    made = time.time() - 61
    os.utime(path / "building-1-00", (made, made))
    SharedStore(str(path))
    assert [each.name for each in path.glob("building-*")] == ["building-2-00"]


def test_removing_the_files_is_removing_the_store(tmp_path, clock):
    """`rm DIR/*` leaves the directory: the workers still find each other in what is made anew there."""
    path = tmp_path / "store"
    one, two = (shared(path, "10/minute by fixed-window", clock, on_error="raise") for _ in range(2))
    one.hit("k", 10)
    for file in path.iterdir():
        file.unlink()
    newcomer = shared(path, "10/minute by fixed-window", clock, on_error="raise")  # whose secret is another
    assert newcomer.hit("k", 3).remaining == 7
    clock.advance(1.0)
    assert (one.hit("k", 3).remaining, two.hit("k", 4).remaining) == (4, 0)
    shutil.rmtree(path)
    assert Limiter("7/hour", store=one.store).hit("k").remaining == 6


def test_clear_reaches_limits_that_only_others_use(tmp_path, clock):
    """A namespace is forgotten whole, whichever process opened its tables."""
    one, two = (shared(tmp_path / "store", text, clock) for text in ("10/minute", "10/hour by sliding-log"))
    one.hit("k", 10)
    two.hit("k", 10)
    SharedStore(str(tmp_path / "store"), clock=clock).clear("default")
    assert (one.peek("k", 0).remaining, two.peek("k", 0).remaining) == (10, 10)


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


NO_FILE_CAN_BE_OPENED = """
import resource, sys
from headgate import Call, Limiter, SharedStore
limiter = Limiter("5/minute", store=SharedStore(sys.argv[1]))
assert limiter.hit("k")
resource.setrlimit(resource.RLIMIT_NOFILE, (3, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
answers = [limiter.decide(Call("1/hour by sliding-log", "ann")) for _ in range(2)]
print([(each.allowed, each.degraded) for each in answers], limiter.hit("k").degraded)
"""


def test_on_error_answers_where_no_file_can_be_opened_any_more(tmp_path):
    """A process with as many files as it may have: a table that it needs is not there, and nothing else fails."""
    command = [sys.executable, "-c", NO_FILE_CAN_BE_OPENED, str(tmp_path / "store")]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert ran.stdout == "[(True, True), (False, True)] False\n", ran.stderr
    assert "Too many open files" in ran.stderr
