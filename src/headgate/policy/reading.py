"""Reading plain values with care: every mistake is noted with its place, and the reading goes on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Any

from headgate.errors import InvalidPolicy
from headgate.policy.source import Path_, Source


class Reading:
    """A policy being read."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._mistakes: list[tuple[Path_, str]] = []

    def mistake(self, path: Path_, message: str) -> None:
        """Note a mistake."""
        self._mistakes.append((path, message))

    def finish(self) -> None:
        """Raise everything that was noted, in the order of the file."""
        if self._mistakes:
            noted = sorted(self._mistakes, key=lambda each: self._source.lines.get(each[0], 0))
            raise InvalidPolicy([self._source.place(path) + message for path, message in noted])

    def fields(self, value: object, path: Path_, known: Sequence[str]) -> Mapping[str, Any]:
        """A mapping with no field but the known ones; what is not is noted, with what was probably meant."""
        if not isinstance(value, Mapping):
            self.mistake(path, f"expected fields ({', '.join(known)}); got {shown(value)}")
            return {}
        for name in value:
            if name not in known:
                close = get_close_matches(str(name), known, n=1, cutoff=0.6)
                hint = f"did you mean {close[0]!r}?" if close else f"there are {', '.join(known)}"
                self.mistake((*path, str(name)), f"unknown field {str(name)!r}; {hint}")
        return {name: value[name] for name in known if name in value}

    def one_of(self, value: object, path: Path_, known: Sequence[str]) -> str | None:
        """One of a few words."""
        if isinstance(value, str) and value in known:
            return value
        close = get_close_matches(str(value) if isinstance(value, str) else "", known, n=1, cutoff=0.6)
        hint = f"; did you mean {close[0]!r}?" if close else ""
        self.mistake(path, f"expected one of {', '.join(known) or 'none that is there'}; got {shown(value)}{hint}")
        return None

    def words(self, value: object, path: Path_, what: str) -> list[str]:
        """A word, or a list of words."""
        found = value if isinstance(value, list | tuple) else [value]
        bad = [each for each in found if not isinstance(each, str)]
        if bad or not found:
            self.mistake(path, f"expected {what}, or a list of them; got {shown(bad[0] if bad else value)}")
            return []
        return list(found)


def shown(value: object) -> str:
    """A value as it appears in messages: never long."""
    try:
        text = repr(value)
    except ValueError:  # a number of more digits than Python writes
        text = f"a {type(value).__name__}"
    return text if len(text) <= 60 else f"{text[:57]}..."
