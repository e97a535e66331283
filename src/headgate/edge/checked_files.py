"""Files that were read without a mistake, kept for workers: a worker that starts later never meets a bad one.

The supervisor looks at the given file, or directory of files, once a second. It copies a changed one, reads the copy,
and shows it to the workers if all is well. They follow what they are shown.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from headgate.errors import HeadgateError, InvalidPolicy
from headgate.wording import log_of

EVERY: Final = 1.0
"""Seconds between two looks."""
Stamps = tuple[tuple[str, int, int, int], ...]
log = log_of("headgate.edge")


class CheckedFiles:
    """The last good version of a file, or of a directory of files."""

    def __init__(self, given: str, folder: Path, read: Callable[[str], None]) -> None:
        self._given = Path(os.path.abspath(given))  # not resolved: operators change links, too
        self._folder = folder
        self._read = read
        """Reads a version; raises if it is bad."""
        self._number = 0
        self._next_look = time.monotonic() + EVERY
        self._shown = folder / "now"
        self.path = str(self._shown / self._given.name)
        """The path at which workers find the files."""
        self.failures = 0
        """The number of changed versions that had mistakes and were not taken up."""
        folder.mkdir()
        self._seen = self._stamps()
        self._show(self._copied())

    def look(self) -> None:
        """Take up a changed version; log what is wrong with a bad one, and keep the one before."""
        if time.monotonic() < self._next_look:
            return
        self._next_look = time.monotonic() + EVERY
        stamps = self._stamps()
        if not stamps or stamps == self._seen:  # a file that is being replaced may be absent for a moment
            return
        self._seen = stamps
        try:
            self._show(self._copied())
        except InvalidPolicy as mistakes:
            self.failures += 1
            log.error("unchanged: %s has errors:\n%s", self._given, mistakes)
        except (HeadgateError, OSError) as reason:
            self.failures += 1
            log.error("unchanged: %s cannot be used: %s", self._given, reason)
        else:
            log.info("%s was read again", self._given)

    def _copied(self) -> Path:
        """Return a new version of the folder that workers are shown, read without a mistake."""
        self._number += 1
        version = self._folder / str(self._number)
        copy = version / self._given.name
        version.mkdir()
        try:
            if self._given.is_dir():
                copy.mkdir()
                for file in self._files():
                    shutil.copyfile(file, copy / file.name)
            else:
                shutil.copyfile(self._given, copy)
            self._read(str(copy))
        except BaseException:
            shutil.rmtree(version, ignore_errors=True)
            raise
        return version

    def _show(self, version: Path) -> None:
        """Show a version in one step, so that no worker reads half of it; the version before goes."""
        before = self._shown.resolve() if self._shown.is_symlink() else None
        link = self._folder / "next"
        link.symlink_to(version.name)
        os.replace(link, self._shown)
        if before is not None:
            shutil.rmtree(before, ignore_errors=True)

    def _files(self) -> list[Path]:
        if not self._given.is_dir():
            return [self._given]
        return sorted(path for path in self._given.iterdir() if path.is_file())

    def _stamps(self) -> Stamps:
        try:
            found = [(path.name, path.stat()) for path in self._files()]
        except OSError:
            return ()
        return tuple((name, stat.st_mtime_ns, stat.st_size, stat.st_ino) for name, stat in found)
