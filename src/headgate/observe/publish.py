"""Counts of several workers: each publishes its own once a second, and whichever is asked sums them."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from headgate.forks import after_fork
from headgate.observe.at_close import at_end
from headgate.observe.directory import Directory
from headgate.observe.published import ALL_KEYS, FIRST_KEYS, NO_KEYS
from headgate.observe.snapshot import Snapshot
from headgate.observe.snapshot_parts import Source, checked, snapshot_of
from headgate.wording import log_of

__all__ = ["FIRST_KEYS", "Watched", "read"]

EVERY: Final = 1.0
"""Seconds between two files of a worker: a worker that is killed loses at most its counts of this time."""
THREAD: Final = "headgate-publish"
log = log_of("headgate.observe")


class Watched:
    """Edges and limiters of this process; with a directory, those of all processes that publish there."""

    def __init__(self, sources: Sequence[Source], publish: str | Path | None = None) -> None:
        self._sources = tuple(checked(sources))
        self._directory = None if publish is None else Directory(Path(publish))
        self._closed = threading.Event()
        self._complained = False
        self._writing = threading.Lock()
        if self._directory is not None:
            self._begin()
            after_fork(self._forked)
            at_end(self, Watched._publish)

    def snapshot(self, keys: int = ALL_KEYS) -> Snapshot:
        """Return the sum over all workers: this one as of now, the others as of their last second."""
        own = snapshot_of(self._sources, keys != NO_KEYS)
        return own if self._directory is None else self._directory.total([own], keys)

    def close(self) -> None:
        """Publish the last counts, and no more."""
        self._publish()
        self._closed.set()

    def _begin(self) -> None:
        self._publish()
        threading.Thread(target=self._go_on, args=(self._closed,), name=THREAD, daemon=True).start()

    def _go_on(self, closed: threading.Event) -> None:
        while not closed.wait(EVERY):
            self._publish()

    def _publish(self) -> None:
        with self._writing:  # from the snapshot on: an older one must not replace a newer one
            if self._directory is None or self._closed.is_set():
                return
            try:
                self._directory.write(snapshot_of(self._sources))
                self._complained = False
            except Exception as error:
                if not self._complained:  # once, and again after it has worked
                    self._complained = True
                    log.warning("the counts could not be published: %s", error)

    def _forked(self) -> None:
        """Publish as another worker in a forked child: its counts begin at zero."""
        if self._directory is not None:
            self._directory.leave()
            self._writing = threading.Lock()
            if not self._closed.is_set():
                self._closed = threading.Event()
                self._begin()


def read(directory: str | Path, keys: int = ALL_KEYS) -> Snapshot:
    """Return the sum of what a directory's workers have published, from outside of them."""
    return Directory(Path(directory), make=False).total([], keys)
