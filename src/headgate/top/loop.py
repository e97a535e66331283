"""The three ways to watch a source: on a terminal, once as a table, and as JSON."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from itertools import count
from queue import SimpleQueue
from typing import TYPE_CHECKING, Final

from headgate.errors import StoreError
from headgate.system import needs
from headgate.top.history import History
from headgate.top.screen import SORTS, Line, View, draw
from headgate.top.shared_screen import draw_shared
from headgate.top.source import Snapshot, Source

if TYPE_CHECKING:
    from headgate.top.terminal import Terminal

PERIOD: Final = 1.0
WIDTH: Final = 120
"""The width of a table that is not for a terminal."""


def once(source: Source, sleep: Callable[[float], None] = time.sleep) -> str:
    """Return one table, from two snapshots a second apart."""
    history = History()
    history.add(source())
    sleep(PERIOD)
    history.add(source())
    rows = len(history.rules()) + len(history.keys("refused_keys")) + 12
    last = history.last or {}
    rows += len(last.get("tables", ())) + len(last.get("in_flight", ()))
    lines = ["".join(text for text, _ in line).rstrip() for line in screen_of(history, View(), WIDTH, 3 * rows)[:-1]]
    while lines and not lines[-1]:
        lines.pop()
    return "\n".join(lines)


def stream(source: Source, most: int | None = None, sleep: Callable[[float], None] = time.sleep) -> Iterator[str]:
    """Yield a snapshot in one line of JSON each second; a source that stops to answer ends it with its error."""
    for at in count() if most is None else range(most):
        if at:
            sleep(PERIOD)
        yield json.dumps(source(), separators=(",", ":"))


def screen_of(history: History, view: View, width: int, height: int) -> list[Line]:
    """Return the lines of the screen, for an app or for a shared store."""
    last = history.last or {}
    if "shared" in last:
        return draw_shared(last, view, width, height)
    return draw(history, view, float(last.get("at", 0.0)), width, height)


def watch(source: Source) -> None:
    """Draw the source on the terminal each second, until q is pressed."""
    needs("termios", "the screen of headgate top", "write --json, or send the table to a file")
    from headgate.top.terminal import Terminal  # here, because it imports rich

    newest, view = History(), View()
    newest.add(source())  # raises before the screen is taken
    history = newest.copied()
    """The snapshots that are drawn: while the screen is paused, snapshots are read on."""
    read: SimpleQueue[Snapshot | StoreError] = SimpleQueue()
    with Terminal() as terminal:
        threading.Thread(target=_read_on, args=(source, read, terminal), daemon=True).start()
        while True:
            terminal.show(screen_of(history, view, *terminal.size))
            for key in terminal.wait():
                if key in "qQ":
                    return
                view = turned(view, key)
            while not read.empty():
                got = read.get()
                view = view._replace(error=str(got) if isinstance(got, StoreError) else "")
                if not isinstance(got, StoreError):
                    newest.add(got)
            history = history if view.paused else newest.copied()


def turned(view: View, key: str) -> View:
    """Return the view after a key was pressed."""
    if key in "pP":
        return view._replace(paused=not view.paused)
    if key in "sS":
        names = list(SORTS)
        return view._replace(sort=names[(names.index(view.sort) + 1) % len(names)])
    if key in "kK":
        return view._replace(keys="busiest_keys" if view.keys == "refused_keys" else "refused_keys")
    return view


def _read_on(source: Source, read: SimpleQueue[Snapshot | StoreError], terminal: Terminal) -> None:
    """Read the source each second, in a thread: a server that hangs must not keep q from working."""
    while True:
        time.sleep(PERIOD)
        try:
            read.put(source())
        except StoreError as error:
            read.put(error)
        terminal.wake()


def write_all(lines: Iterator[str]) -> None:
    """Write lines until the reader has gone, or the user has interrupted it."""
    try:
        for line in lines:
            print(line, flush=True)
    except KeyboardInterrupt:
        return
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
