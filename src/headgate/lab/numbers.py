"""Numbers and times as the reader sees them."""

from __future__ import annotations

from typing import Final

from headgate.clock import SECOND
from headgate.limit import write_period

NOTHING: Final = "-"
"""A figure that does not exist."""
_MINUTE: Final = 60 * SECOND
_HUNDRED: Final = 100.0


def count(number: int) -> str:
    """Write a number with its thousands apart."""
    return f"{number:,}"


def several(number: int, word: str) -> str:
    """Write a number with its noun."""
    return f"1 {word}" if number == 1 else f"{number:,} {word}s"


def percent(part: int, whole: int) -> str:
    """Write a share: a small one is never written as 0, nor one that is not whole as 100."""
    if not whole:
        return NOTHING
    value = _HUNDRED * part / whole
    if part in (0, whole):
        return f"{value:.0f} %"
    text = f"{value:.1f}" if value >= 10 else f"{value:.2f}" if value >= 0.1 else f"{value:.4f}"
    if float(text) == 0:
        return "< 0.0001 %"
    return "> 99.9 %" if float(text) == _HUNDRED else f"{text} %"


def multiple(number: float) -> str:
    """Write how many times as much something is; what is near 1 is not written as 1."""
    if number == 1 or not 0.95 <= number < 1.05:
        return f"{number:.1f}x"
    text = f"{number:.2f}x"
    return text if text != "1.00x" else f"{'>' if number > 1 else '<'} {text}"


def period(period_us: int) -> str:
    """Write a period after 'in'."""
    if period_us <= _MINUTE:
        return f"{period_us / SECOND:g} s"
    text = write_period(period_us)
    return text if text[0].isdigit() else f"1 {text}"


def duration(us: int) -> str:
    """Write a length of whole seconds."""
    parts, rest = [], us // SECOND
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s")):
        if rest >= size:
            parts.append(f"{rest // size} {unit}")
            rest %= size
    return " ".join(parts)
