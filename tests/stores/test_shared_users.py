"""Users and shared stores: users of the store's group can use every file, and others can open none."""

from __future__ import annotations

import fcntl
import os
import shutil
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from headgate import InvalidCall, Limiter, StoreError
from headgate.engine import NATIVE
from headgate.stores.shared import SharedStore
from tests.support.sharing import shared

pytestmark = pytest.mark.skipif(not NATIVE, reason="shared stores need the native engine")


def test_who_may_read_the_directory_cannot_lock_the_store(tmp_path, monkeypatch):
    """A directory that others may read, as `mkdir` makes it: locking it, which needs no more, is in nobody's way."""
    monkeypatch.setattr("headgate.stores.shared.PATIENCE", 0.05)
    (tmp_path / "store").mkdir(mode=0o755)
    (tmp_path / "store").chmod(0o755)
    folder = os.open(tmp_path / "store", os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        assert shared(tmp_path / "store").hit("k")
    finally:
        os.close(folder)


@pytest.mark.parametrize(("mode", "files"), [(0o700, 0o600), (0o770, 0o660)])
def test_no_file_of_a_store_can_be_opened_by_others(tmp_path, mode, files):
    """Secret, lock and tables are closed to others, whatever the umask is."""
    before = os.umask(0)
    try:
        Limiter("10/minute", store=SharedStore(str(tmp_path / "store"), max_keys=100, mode=mode)).hit("k")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "store").stat().st_mode) == mode
    modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in (tmp_path / "store").iterdir()}
    assert {"lock", "meta", "roll"} < modes.keys()
    assert set(modes.values()) == {files}


@pytest.mark.parametrize("mode", [0o755, 0o777, 0o750, 0o701, 0o600, 0o2770, 0, "0700", None])
def test_a_mode_that_is_not_safe_is_refused(tmp_path, mode):
    """Others could read the secret, or keep the store locked; the error shows what may be said."""
    with pytest.raises(InvalidCall, match="is 0o700, for one user, or 0o770, for a group"):
        SharedStore(str(tmp_path / "store"), mode=mode)
    assert not (tmp_path / "store").exists()


def as_user(uid: int, gid: int, work: Callable[[], bool]) -> str:
    """What comes of it in a child that is somebody else."""
    child = os.fork()
    if child == 0:
        status = 3
        try:
            os.setgroups([])
            os.setgid(gid)
            os.setuid(uid)
            status = 0 if work() else 2
        except StoreError:
            status = 1
        finally:
            os._exit(status)
    return ["yes", "refused", "no", "failed"][os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])]


@pytest.fixture
def elsewhere() -> Iterator[Path]:
    """A directory that every user can reach."""
    path = Path(f"/tmp/headgate-test-{os.getpid()}")
    path.mkdir(mode=0o755)
    path.chmod(0o755)
    yield path
    shutil.rmtree(path)


NOBODY, STRANGER = 65534, 65533
is_root = pytest.mark.skipif(
    not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root can become somebody else"
)


@is_root
def test_users_of_a_group_share_a_store_and_others_do_not(elsewhere):
    """Made beforehand with the group and its bit, as the page says; mode 0700 is refused to all but its user."""
    (elsewhere / "store").mkdir()
    os.chown(elsewhere / "store", 0, NOBODY)
    (elsewhere / "store").chmod(0o2770)

    def hit(mode: int, path: str = "store") -> Callable[[], bool]:
        return lambda: (
            Limiter("10/minute", store=SharedStore(str(elsewhere / path), mode=mode)).hit("k", 4).remaining == 2
        )

    assert Limiter("10/minute", store=SharedStore(str(elsewhere / "store"), mode=0o770)).hit("k", 4).remaining == 6
    assert as_user(STRANGER, NOBODY, hit(0o770)) == "yes"
    assert as_user(STRANGER, STRANGER, hit(0o770)) == "refused"
    assert Limiter("10/minute", store=SharedStore(str(elsewhere / "own"))).hit("k", 4)
    assert as_user(STRANGER, NOBODY, hit(0o700, "own")) == "refused"


@is_root
def test_root_may_use_the_store_of_a_user_and_locks_nobody_out(elsewhere):
    """Files that root makes there are the user's: a process of the user goes on with them."""
    elsewhere.chmod(0o777)

    def hit(text: str, remaining: int) -> Callable[[], bool]:
        return lambda: Limiter(text, store=SharedStore(str(elsewhere / "store"))).hit("k").remaining == remaining

    assert as_user(NOBODY, NOBODY, hit("10/minute", 9)) == "yes"
    assert hit("10/minute", 8)() and hit("5/hour", 4)()
    assert as_user(NOBODY, NOBODY, hit("5/hour", 3)) == "yes"
    assert as_user(STRANGER, NOBODY, hit("5/hour", 2)) == "refused"
    assert {file.stat().st_uid for file in (elsewhere / "store").iterdir()} == {NOBODY}
