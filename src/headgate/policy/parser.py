"""Parse plain values. Every error is collected with its place, and parsing goes on."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final, cast, get_args

from headgate.algorithms import EXACT
from headgate.errors import InvalidPolicy
from headgate.limit import LimitWarning
from headgate.policy.awaited_functions import AWAITED, is_awaited, result_of
from headgate.policy.hashing import Hash, hashed
from headgate.policy.source import Path_, Source
from headgate.policy.values import Repeated
from headgate.policy.view import ClaimsOf, RequestView, informed
from headgate.wording import in_limit, listed, nearest, shown, suggestion

MOST_HINTS: Final = 100
"""Errors that get a "did you mean" hint: finding the nearest word takes longer than parsing."""


class Parser:
    """The state of parsing one policy: its errors, and the settings that all of its rules share."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._mistakes: list[tuple[Path_, str]] = []
        self._notes: list[tuple[Path_, str]] = []
        self.hashed: Hash = hashed
        """The hash for secret values."""
        self.client_key: Callable[[str], str]
        """The function that makes the key of an address; set by the policy."""
        self.claims_of: ClaimsOf | None = None
        """The function that finds the claims of a request when the app gives none."""
        self.awaited: list[Callable[..., Any]] = []
        """Functions of the app that have to be awaited, in the order of the policy."""
        self.repeated: Repeated = "refuse"
        """The treatment of a request that sends different values under one name."""

    def error(self, path: Path_, message: str) -> None:
        """Collect an error."""
        self._mistakes.append((path, message))

    def warn(self, path: Path_, message: str) -> None:
        """Collect a warning: the policy is valid, but probably not what its author wants."""
        self._notes.append((path, message))

    def finish(self) -> None:
        """Raise every error, in the order of the file; without errors, issue the warnings."""
        if self._mistakes:
            noted = sorted(self._mistakes, key=lambda each: self._source.lines.get(each[0], 0))
            raise InvalidPolicy([self._source.place(path) + message for path, message in noted])
        for path, message in self._notes:
            warnings.warn(self._source.where(path) + message, LimitWarning, stacklevel=3)

    def fields(self, value: object, path: Path_, known: Collection[str]) -> Mapping[str, Any]:
        """Return the known fields of a mapping; each unknown field is an error, with a hint."""
        if not isinstance(value, Mapping):
            self.error(path, f"expected fields ({', '.join(known)}); got {shown(value)}")
            return {}
        for name in value:
            if name not in known:
                words = in_limit(str(name), value[name], value["limits"]) if "limits" in value else ""
                hint = words or (suggestion(str(name), known) if self._hints(known) else f"use one of {listed(known)}")
                self.error((*path, str(name)), f"unknown field {shown(str(name))}; {hint}")
        return {name: value[name] for name in known if name in value}

    def one_of(self, value: object, path: Path_, known: Collection[str]) -> str | None:
        """Return the value if it is one of the known words; otherwise None and an error."""
        if isinstance(value, str) and value in known:
            return value
        near = nearest(value, known) if isinstance(value, str) and self._hints(known) else None
        hint = f"; did you mean {near!r}?" if near else ""
        self.error(path, f"expected one of {listed(known)}; got {shown(value)}{hint}")
        return None

    def _hints(self, known: Collection[str]) -> bool:
        """Whether to search for the nearest word: the bound keeps a hostile file from being slow to parse."""
        return len(self._mistakes) < MOST_HINTS >= len(known)

    def read_repeated(self, given: Mapping[str, Any], path: Path_) -> Repeated:
        """Read the field `repeated` of a policy or of a rule."""
        if "repeated" not in given:
            return self.repeated
        return cast("Repeated", self.one_of(given["repeated"], (*path, "repeated"), get_args(Repeated)) or "refuse")

    def function(self, value: Callable[..., Any], path: Path_) -> Callable[..., Any]:
        """Return the app's function of the request; one that has to be awaited is noted in `awaited`."""
        if is_awaited(value):
            if AWAITED.isdisjoint(path):
                self.error(path, f"expected a plain function; {shown(value)} has to be awaited")
            self.awaited.append(value)
            return lambda view: result_of(value, view)
        return informed(value, self.claims_of, self.repeated)

    def condition(self, value: Callable[..., Any], path: Path_) -> Callable[..., Any]:
        """Return the app's function as a condition; an answer that has to be awaited raises, as it would be true."""
        function, place = self.function(value, path), self._source.place(path)

        def holds(view: RequestView) -> Any:  # noqa: ANN401
            answer = function(view)
            if hasattr(type(answer), "__await__"):
                raise InvalidPolicy([f"{place}a function gave {shown(answer)}, which has to be awaited"])
            return answer

        return holds

    def whole(self, value: object, path: Path_, least: int, most: int = EXACT) -> int:
        """Return a whole number within the bounds; anything else is an error."""
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            upto = f" to {most}" if most < EXACT else ""
            self.error(path, f"expected a whole number from {least}{upto}; got {shown(value)}")
            return max(least, 0)
        return value

    def words(self, value: object, path: Path_, what: str) -> list[str]:
        """Return the words of a word or of a list of words."""
        found = value if isinstance(value, list | tuple) else [value]
        bad = [each for each in found if not isinstance(each, str)]
        if bad or not found:
            self.error(path, f"expected {what}, or a list of them; got {shown(bad[0] if bad else value)}")
            return []
        return list(found)
