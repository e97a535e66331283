"""Databases of the tests, each in a folder of its own, in memory where the machine has a file system there."""

import shutil
import tempfile
from pathlib import Path

import pytest


@pytest.fixture
def folder():
    """An empty folder."""
    path = Path(tempfile.mkdtemp(prefix="headgate-sql-", dir="/dev/shm" if Path("/dev/shm").is_dir() else None))
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture
def url(folder):
    """The URL of a SQLite file that is not there yet; a busy machine is given time."""
    return f"sqlite://{folder}/limits.db?deadline=20"
