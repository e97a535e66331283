"""`headgate shared rm`: a store is removed, and nothing else."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from headgate import Limiter
from headgate.engine import NATIVE
from headgate.stores.shared import SharedStore
from tests.cli.test_shared import everything_in, facts, table_of

pytestmark = pytest.mark.skipif(not NATIVE, reason="shared stores need the native engine")


def test_rm_removes_the_store(run, path, store):
    """The files and the directory are gone, and nothing is left beside them; what was removed is told."""
    Path(path, "building-1-00").write_bytes(b"left")
    size = sum(file.stat().st_size for file in Path(path).iterdir())
    assert run("rm", f"shared://{path}") == (0, f"removed {path} (tables: 1, bytes: {size})\n", "")
    assert os.listdir(os.path.dirname(path)) == []


def test_rm_removes_what_is_broken(run, path, store):
    """A store whose tables or layout nobody can read is still a store, and can be removed."""
    table_of(path).write_bytes(b"x")
    meta = Path(path, "meta")
    meta.write_bytes(meta.read_bytes()[:8] + (99).to_bytes(8, "little"))
    assert run("rm", path)[0] == 1
    meta.write_bytes(meta.read_bytes() + bytes(8))
    assert run("rm", path)[0] == 0
    assert not os.path.exists(path)


def test_those_who_use_it_begin_anew(run, path, clock):
    """A second after a removal, a process that had the store open counts in a new one at the same path."""
    limiter = Limiter("100/minute", store=SharedStore(path, max_keys=1_000, clock=clock))
    limiter.hit("ann", cost=60)
    assert run("rm", path)[0] == 0
    clock.advance(1)
    assert limiter.hit("ann").remaining == 99
    told = facts(run("stat", path)[1])
    assert (told["participants"], told["tables"], told["keys"]) == ("1", "1", "1")


def test_rm_refuses_a_directory_with_other_files(run, path, store):
    """Where anything lies that is not a store's, nothing is removed."""
    Path(path, "notes").touch()
    before = everything_in(path)
    assert run("rm", path) == (
        1,
        "",
        f"headgate: nothing was removed: '{path}/notes' is not headgate's, remove it first if it is not needed\n",
    )
    assert everything_in(path) == before
