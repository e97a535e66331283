"""Counts of several workers: each publishes its own once a second, and whichever is asked sums them."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from headgate.forks import after_fork
from headgate.observe.directory import Directory
from headgate.observe.merging import merged
from headgate.observe.parts import Source, snapshot_of
from headgate.observe.snapshot import Snapshot
from headgate.wording import log_of

EVERY: Final = 1.0
"""Seconds between two files of a worker: a worker that is killed loses at most its counts of this time."""
THREAD: Final = "headgate-publish"
log = log_of("headgate.observe")


class Watched:
    """Edges and limiters of this process; with a directory, those of all processes that publish there."""

    def __init__(self, sources: Sequence[Source], publish: str | Path | None = None) -> None:
        self._sources = tuple(sources)
        self._directory = None if publish is None else Directory(Path(publish))
        self._closed = threading.Event()
        self._complained = False
        if self._directory is not None:
            self._begin()
            after_fork(self._forked)

    def snapshot(self) -> Snapshot:
        """Return the sum over all workers: this one as of now, the others as of their last second."""
        own = snapshot_of(self._sources)
        if self._directory is None:
            return own
        alive, dead = self._directory.others()
        return merged([own, *alive], time.time(), dead)

    def close(self) -> None:
        """Publish the last counts, and no more."""
        self._closed.set()
        self._write()

    def _begin(self) -> None:
        self._write()
        threading.Thread(target=self._go_on, args=(self._closed,), name=THREAD, daemon=True).start()

    def _go_on(self, closed: threading.Event) -> None:
        while not closed.wait(EVERY):
            self._write()

    def _write(self) -> None:
        if self._directory is None:
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
            self._closed = threading.Event()
            self._begin()


def read(directory: str | Path) -> Snapshot:
    """Return the sum of what a directory's workers have published, from outside of them."""
    alive, dead = Directory(Path(directory), make=False).others()
    return merged(alive, time.time(), dead)
