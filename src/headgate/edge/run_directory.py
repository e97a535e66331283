"""The directory of a run: its store, if it was given none, and files for its workers. It is removed at the end."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from headgate.system import lock_file

SERVE: Final = ("headgate serve", "run it on Linux or macOS")
PREFIX: Final = "headgate-serve-"
MEMORY: Final = "/dev/shm"  # noqa: S108 - a directory that only its owner can read is made there


@contextmanager
def run_directory() -> Iterator[Path]:
    """Return a new directory, in memory if it can be. A lock on it shows that the service runs."""
    parent = Path(MEMORY if os.path.isdir(MEMORY) else tempfile.gettempdir())
    _remove_left_behind(parent)
    directory = tempfile.mkdtemp(prefix=PREFIX, dir=parent)
    fd = os.open(directory, os.O_RDONLY)
    try:
        lock_file(fd, *SERVE)  # nobody else knows its name
        yield Path(directory)
    finally:
        shutil.rmtree(directory, ignore_errors=True)
        os.close(fd)


def _remove_left_behind(parent: Path) -> None:
    """Remove the directories of services that were killed: they are not locked any more."""
    for directory in parent.glob(f"{PREFIX}*"):
        try:
            fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        except OSError:
            continue  # of another user, or gone
        if lock_file(fd, *SERVE):
            shutil.rmtree(directory, ignore_errors=True)
        os.close(fd)
