"""SQLite files that are busy, full, read-only, damaged or away: errors that say why, and `on_error` in time."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Callable

import pytest

from headgate import Limiter, StoreError
from headgate.observe import store_part
from headgate.stores.sql.sqlite import SqliteStore
from headgate.testing import ManualClock
from tests.support.inside import sqlite_connection
from tests.support.servers import wait_until

pytestmark = pytest.mark.engineless


@pytest.fixture
def store(url):
    """A store by a clock that stands still."""
    with contextlib.closing(SqliteStore(url, clock=ManualClock(1e9))) as store:
        yield store


def test_a_busy_file_is_answered_for_within_the_deadline(folder):
    """While another program holds the write lock, `on_error` answers; afterwards the file does."""
    with contextlib.closing(SqliteStore(f"sqlite://{folder}/limits.db", deadline=0.2)) as store:
        limiter = Limiter("3/day", store=store)
        Limiter("1/day as other", store=SqliteStore(f"sqlite://{folder}/limits.db", deadline=10)).hit("k")
        other = sqlite3.connect(store.path, isolation_level=None)
        with contextlib.closing(other):
            other.execute("BEGIN IMMEDIATE")
            assert limiter.hit("k").degraded
            assert limiter.peek("k").degraded is False
            with pytest.raises(StoreError, match="held the write lock for longer than the deadline"):
                Limiter("3/day", store=store, on_error="raise").hit("k")
            other.execute("ROLLBACK")
        wait_until(lambda: not limiter.hit("k", 0).degraded, "the file answers again")
        assert limiter.peek("k").remaining == 3


def test_a_file_that_cannot_be_used_says_why(folder):
    """A missing directory, a file that is no database and a full disk are errors that say what to do."""
    missing = SqliteStore(f"sqlite://{folder}/none/limits.db")
    with pytest.raises(StoreError, match="cannot be opened: its directory must exist"):
        Limiter("3/day", store=missing, on_error="raise").hit("k")
    (folder / "text.db").write_text("hello" * 1000)
    with pytest.raises(StoreError, match="is not a SQLite database"):
        Limiter("3/day", store=SqliteStore(f"sqlite://{folder}/text.db"), on_error="raise").hit("k")


def test_health_tells_of_an_outage(folder):
    """A directory goes away: three commands fail, then the store is known to be away; it comes back, and so it says."""
    (folder / "data").mkdir()
    store = SqliteStore(f"sqlite://{folder}/data/limits.db?deadline=20")
    with contextlib.closing(store):
        limiter = Limiter("9/day", store=store)
        limiter.hit("k")
        assert store_part("", store) == {
            "id": id(store), "name": "", "kind": "sqlite", "up": True, "errors": 0, "keys": None, "evictions": None,
            "degraded": False, "seconds": None,
        }  # fmt: skip
        store.hang_up()
        (folder / "data").rename(folder / "gone")
        assert all(limiter.hit("k").degraded for _ in range(5))
        assert store.health() == (False, 3, None)
        part = store_part("", store)
        assert (part["up"], part["errors"], part["degraded"]) == (False, 3, True)
        (folder / "gone").rename(folder / "data")
        wait_until(lambda: not limiter.hit("k", 0).degraded, "the file answers again")
        assert store.health() == (True, 3, None)


def test_a_full_disk_is_a_clear_error(store):
    """A file that cannot grow refuses the write, charges nothing, and the limiter answers by `on_error`."""
    limiter = Limiter("3/day by sliding-log", store=store, on_error="raise")
    limiter.hit("k")
    sqlite_connection(store).execute("PRAGMA max_page_count = 1")
    with pytest.raises(StoreError, match="cannot grow: the disk is full"):
        for n in range(1000):
            limiter.hit(f"k{n}")
    assert limiter.peek("k").remaining == 2
    answered = Limiter("3/day by sliding-log", store=store)
    assert any(answered.hit(f"k{n}").degraded for n in range(1000, 2000))
    store.hang_up()  # the bound of the pages is that of a connection
    wait_until(lambda: not answered.hit("new", 0).degraded, "the file can grow")
    assert answered.hit("new").remaining == 2 and limiter.peek("k").remaining == 2


@pytest.mark.parametrize(("directory", "code"), [(0o777, "SQLITE_READONLY"), (0o555, "SQLITE_READONLY_DIRECTORY")])
def test_a_read_only_file_is_a_clear_error(folder, directory, code):
    """A user who may not write to the file, or to its directory, is told so; `on_error` answers, nothing is charged."""
    with contextlib.closing(SqliteStore(f"sqlite://{folder}/limits.db")) as store:
        Limiter("3/day", store=store, on_error="raise").hit("k")
        store.close()
        os.chmod(folder / "limits.db", 0o444)
        os.chmod(folder, directory)
        error, degraded, up = in_a_child_of_nobody(lambda: _try(store)).split("\n")
        says = "is read-only: this user must be able to write to the file and to its directory"
        assert error == f"{folder}/limits.db {says} ({code})"
        assert (degraded, up) == ("True True True", "False")
        os.chmod(folder, 0o777)
        os.chmod(folder / "limits.db", 0o666)
        assert Limiter("3/day", store=store, on_error="raise").hit("k").remaining == 1


def _try(store: SqliteStore) -> str:
    try:
        Limiter("3/day", store=store, on_error="raise").hit("k")
    except StoreError as error:
        degraded = " ".join(str(Limiter("3/day", store=store).hit("k").degraded) for _ in range(3))
        return f"{error}\n{degraded}\n{store.health().up}"
    return "no error\n\n"


def in_a_child_of_nobody(work: Callable[[], str]) -> str:
    """Return what a child process says that is not root, which may write to every file."""
    reads, writes = os.pipe()
    child = os.fork()
    if not child:
        try:
            if os.getuid() == 0:
                os.setgroups([])
                os.setresgid(65534, 65534, 65534)
                os.setresuid(65534, 65534, 65534)
            os.write(writes, work().encode())
        finally:
            os._exit(0)
    os.close(writes)
    os.waitpid(child, 0)
    with os.fdopen(reads) as said:
        return said.read()


@pytest.mark.parametrize("replaced", [False, True], ids=["removed", "replaced"])
def test_a_file_that_was_removed_is_not_counted_in_any_longer(folder, replaced):
    """Counts are lost with it, as in an empty server; but all processes go on in one file, and admit one limit."""
    url = f"sqlite://{folder}/limits.db"
    with contextlib.closing(SqliteStore(url)) as early, contextlib.closing(SqliteStore(url)) as late:
        running, new = Limiter("3/day", store=early), Limiter("3/day", store=late)
        assert running.hit("k", 3)
        for path in list(folder.iterdir()):
            path.unlink()
        order = [new, running, new, running] if replaced else [running, new, running, new]
        answers = [limiter.hit("k") for limiter in order]
        assert [each.allowed for each in answers] == [True, True, True, False]
        assert not any(each.degraded for each in answers)
        assert sorted(path.name for path in folder.iterdir() if path.suffix == ".db") == ["limits.db"]
