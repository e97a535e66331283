"""The terminal of `headgate top`: its size, its keys and its colours. The only file that imports rich."""

from __future__ import annotations

import os
import select
import signal
import sys
import termios
import tty
from typing import Any, Final, Self

from headgate.top.screen import Line
from headgate.wording import requiring

with requiring("headgate top", "rich", extra="top"):
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

STYLES: Final = {
    "title": "bold",
    "quiet": "#76818e",
    "passed": "#5bb8ee",
    "refused": "#ff8552",
    "warning": "#f2c14e",
    "": "",
}
"""The colours of the playground, in the dark; rich leaves them out if NO_COLOR is set."""


def text_of(lines: list[Line]) -> Text:
    """Return the lines as one text of rich's."""
    text = Text(no_wrap=True, overflow="crop", end="")
    for at, line in enumerate(lines):
        if at:
            text.append("\n")
        for word, style in line:
            text.append(word, STYLES[style])
    return text


class Terminal:
    """The whole screen, until the end of the block: then it is as it was before."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console(highlight=False, emoji=False, markup=False)
        self._live = Live(console=self._console, screen=True, auto_refresh=False)
        self._keys = sys.stdin.fileno()
        self._woken, self._waker = os.pipe()
        os.set_blocking(self._waker, False)

    def __enter__(self) -> Self:
        self._before = termios.tcgetattr(self._keys)
        self._signal: Any = signal.signal(signal.SIGWINCH, lambda *_: self.wake())
        tty.setcbreak(self._keys)
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()
        termios.tcsetattr(self._keys, termios.TCSADRAIN, self._before)
        signal.signal(signal.SIGWINCH, self._signal)

    @property
    def size(self) -> tuple[int, int]:
        """The columns and the lines of the terminal now."""
        return self._console.size.width, max(8, self._console.size.height)

    def show(self, lines: list[Line]) -> None:
        """Draw these lines."""
        self._live.update(text_of(lines), refresh=True)

    def wake(self) -> None:
        """End the present `wait`, from a signal or another thread."""
        try:
            os.write(self._waker, b".")
        except BlockingIOError:  # it is awake already
            return

    def wait(self) -> str:
        """Wait for keys, or for `wake`; return the keys that were pressed. A terminal that has gone is a q."""
        ready, _, _ = select.select([self._keys, self._woken], [], [])
        if self._woken in ready:
            os.read(self._woken, 4096)
        if self._keys not in ready:
            return ""
        return os.read(self._keys, 64).decode("latin-1") or "q"
