"""The place of a SQLite file: its path in a URL, and whether the open file is still there."""

from __future__ import annotations

import os
from typing import Final
from urllib.parse import unquote

from headgate.errors import InvalidCall
from headgate.stores.url import split
from headgate.wording import shown

EXAMPLE: Final = "sqlite:///var/lib/app/limits.db"
OPTIONS: Final = ("deadline", "nodes", "readable_keys")


def path_of(url: str) -> str:
    """Return the path of a URL without options, or raise `InvalidCall`."""
    parts = split(url)
    path = unquote(parts.path)
    if parts.query:
        raise InvalidCall(f"cannot read {shown(url)}: a SQLite store has the options {', '.join(OPTIONS)}")
    if parts.netloc and not path.strip("/"):  # a process with another working directory would count apart
        raise InvalidCall(f"{shown(url)}: the path must be absolute; write sqlite://{os.path.abspath(parts.netloc)}")
    if parts.netloc or len(path.strip("/")) < 1 or "\0" in path:
        raise InvalidCall(f"cannot read {shown(url)}: a SQLite store needs a file; write {EXAMPLE}")
    if path.endswith(":memory:"):
        raise InvalidCall("a SQLite database in memory is no faster than memory://, and no other process sees it")
    return os.path.normpath("/" + path.lstrip("/"))


class Place:
    """A path, and the file that was found there when it was opened.

    A file that was removed goes on in the processes that have it open, while others make a new one: each file would
    admit the whole limit.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._found: tuple[int, int] | None = None

    def note(self) -> None:
        """Note that the file was opened."""
        self._found = self._here()

    def is_lost(self) -> bool:
        """Return whether the file was removed, or another one put into its place, since it was opened."""
        try:
            return self._found is not None and self._found != self._here()
        except OSError:  # a process without rights to the directory goes on with the open file
            return False

    def _here(self) -> tuple[int, int]:
        try:
            found = os.stat(self._path)
        except FileNotFoundError:
            return 0, 0
        return found.st_dev, found.st_ino
