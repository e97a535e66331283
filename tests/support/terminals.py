"""A terminal in memory: a program runs in a pseudo-terminal, and an emulator keeps the screen that a user would see."""

from __future__ import annotations

import fcntl
import os
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Mapping
from typing import Self

import pyte


class InTerminal:
    """A program of this Python in a terminal of its own."""

    def __init__(self, *words: str, columns: int, lines: int, env: Mapping[str, str] | None = None) -> None:
        self._master, slave = os.openpty()
        self.screen = pyte.Screen(columns, lines)
        self._stream = pyte.ByteStream(self.screen)
        self._resize(slave, columns, lines)
        kept = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "COLUMNS", "LINES")}
        self.process = subprocess.Popen(
            [sys.executable, "-m", *words],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env={**kept, "TERM": "xterm-256color", "COLORTERM": "truecolor", **(env or {})},
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # for SIGWINCH
        )
        os.close(slave)
        self.written = b""

    def _resize(self, terminal: int, columns: int, lines: int) -> None:
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def resize(self, columns: int, lines: int) -> None:
        """Change the size, as a user who pulls at the window."""
        self.screen.resize(lines, columns)
        self._resize(self._master, columns, lines)

    def press(self, keys: str) -> None:
        """Type these keys."""
        os.write(self._master, keys.encode())

    def lines(self) -> list[str]:
        """The screen, without spaces at the ends of lines."""
        return [line.rstrip() for line in self.screen.display]

    def until(
        self, wanted: str | Callable[[list[str]], bool], seconds: float = 30.0, absent: bool = False
    ) -> list[str]:
        """Return the screen when it has this text (or no longer has it), or when a function says so of its lines."""
        end = time.monotonic() + seconds

        def is_there() -> bool:
            return wanted in "\n".join(self.lines()) if isinstance(wanted, str) else wanted(self.lines())

        while is_there() == absent:
            if time.monotonic() > end or not self._feed(0.2):
                raise AssertionError(f"no {wanted!r} on the screen:\n" + "\n".join(self.lines()))
        while self._feed(0.05):  # the rest of this drawing
            if not self._more:
                break
        return self.lines()

    def _feed(self, wait: float) -> bool:
        """Read what was written within this time; False if the program has ended."""
        waiting = select.poll()  # `select` knows no file above 1,024, and a worker of the suite may have more
        waiting.register(self._master, select.POLLIN)
        self._more = bool(waiting.poll(wait * 1000))
        if not self._more:
            return True
        try:
            got = os.read(self._master, 65_536)
        except OSError:  # Linux, when the other side is closed
            return False
        self.written += got
        self._stream.feed(got)
        return bool(got)

    def end(self, seconds: float = 30.0) -> int:
        """Return the exit code of a program that ends."""
        end = time.monotonic() + seconds
        while self.process.poll() is None and time.monotonic() < end:
            self._feed(0.05)
        return self.process.wait(0.1)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
            while self.process.poll() is None and self._feed(0.05):  # its last bytes keep it from ending
                continue
        os.close(self._master)
        self.process.wait()
