"""Follow the files of a directory: looked at once a second, read in a thread, unchanged if new files have mistakes."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Final

from headgate.edge.envoy.reader import files_in, read_domains
from headgate.errors import InvalidPolicy
from headgate.wording import log_of

EVERY: Final = 1.0
"""Seconds between two looks at the directory."""
Stamps = tuple[tuple[str, int, int, int], ...]
log = log_of("headgate.edge")


class Followed:
    """The domains of a directory, as they are now."""

    def __init__(self, directory: Path, algorithm: str) -> None:
        self._directory = directory
        self._algorithm = algorithm
        self._seen = self._stamps()
        self._next_look = time.monotonic() + EVERY
        self._reader: threading.Thread | None = None
        self.domains = read_domains(directory, algorithm)

    def look(self) -> None:
        """Start to read changed files, at most once a second; requests meanwhile are answered by the old ones."""
        now = time.monotonic()
        if now < self._next_look:
            return
        self._next_look = now + EVERY
        if self._reader is not None and self._reader.is_alive():
            return
        stamps = self._stamps()
        if stamps and stamps != self._seen:  # a directory that is being replaced may be empty for a moment
            self._reader = threading.Thread(target=self._read, args=(stamps,), name="headgate-envoy", daemon=True)
            self._reader.start()

    def _read(self, stamps: Stamps) -> None:
        try:
            self.domains = read_domains(self._directory, self._algorithm)
        except InvalidPolicy as mistakes:
            log.error("the limits for Envoy are unchanged; %s has errors:\n%s", self._directory, mistakes)
        except Exception:
            log.exception("the limits for Envoy are unchanged; %s cannot be read", self._directory)
        else:
            log.info("the limits for Envoy were read again from %s", self._directory)
            for note in self.domains.notes:
                log.warning("%s", note)
        self._seen = stamps

    def _stamps(self) -> Stamps:
        found = []
        try:
            for path in files_in(self._directory):
                stat = path.stat()
                found.append((path.name, stat.st_mtime_ns, stat.st_size, stat.st_ino))
        except (OSError, InvalidPolicy):
            return ()
        return tuple(found)
