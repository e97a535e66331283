"""Read the YAML files of envoyproxy/ratelimit as they are; collect every mistake of every file, with its line."""

from __future__ import annotations

import re
import warnings
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from headgate.edge.envoy.rules import UNITS, Descriptor, Rule
from headgate.errors import InvalidLimit, InvalidPolicy
from headgate.limit import Limit
from headgate.policy.edges import Source, read_words
from headgate.wording import listed, shown, suggestion

MOST: Final = 2**32 - 1
"""The largest `requests_per_unit`: Envoy's messages have 32 bits for it."""
ROOT: Final = ("domain", "descriptors")
IDLE: Final = ("detailed_metric", "value_to_metric", "metadata")
"""Fields that are read and do nothing."""
DESCRIPTOR: Final = (
    "key", "value", "rate_limit", "descriptors", "shadow_mode", "quota_mode", "share_threshold", *IDLE,
)  # fmt: skip
RATE_LIMIT: Final = ("unit", "requests_per_unit", "unlimited", "name", "replaces", "algorithm", "burst")
Path_ = tuple[str | int, ...]


class Domains(NamedTuple):
    """All domains of a directory."""

    by_name: Mapping[str, Descriptor]
    notes: tuple[str, ...]
    """Fields that do nothing here, and limits that are probably not a good choice, with file and line."""


def files_in(directory: Path) -> list[Path]:
    """Return the `.yaml` and `.yml` files of a directory by name, without those whose name begins with a dot."""
    try:
        names = sorted(path.name for path in directory.iterdir())
    except OSError as reason:
        raise InvalidPolicy([f"{directory}: cannot be read: {reason.strerror or reason}"]) from None
    return [directory / name for name in names if name.endswith((".yaml", ".yml")) and name[0] != "."]


def read_domains(directory: Path, algorithm: str) -> Domains:
    """Read every file of a directory; raise `InvalidPolicy` with the mistakes of all of them."""
    files = files_in(directory)
    mistakes: list[str] = [] if files else [f"{directory}: has no .yaml file; write one domain in each"]
    notes: list[str] = []
    domains: dict[str, Descriptor] = {}
    for path in files:
        try:
            file = _File(read_words(path), algorithm)
        except InvalidPolicy as reason:
            mistakes += reason.mistakes
            continue
        name, domain = file.domain()
        if name in domains:
            file.error(("domain",), f"the domain {shown(name)} is in another file already")
        domains.setdefault(name, domain)
        mistakes += file.sorted_mistakes()
        notes += file.notes
    if mistakes:
        raise InvalidPolicy(mistakes)
    return Domains(domains, tuple(notes))


class _File:
    """One file, and the mistakes that are found in it."""

    def __init__(self, source: Source, algorithm: str) -> None:
        self._source = source
        self._algorithm = algorithm
        self._mistakes: list[tuple[Path_, str]] = []
        self.notes: list[str] = []

    def error(self, path: Path_, message: str) -> None:
        """Collect a mistake."""
        self._mistakes.append((path, message))

    def sorted_mistakes(self) -> list[str]:
        """Return the mistakes in the order of the file."""
        noted = sorted(self._mistakes, key=lambda each: self._line(each[0]))
        return [self._source.place(path) + message for path, message in noted]

    def _line(self, path: Path_) -> int:
        """Return the line of a value, or of the value around one that is missing."""
        lines = self._source.lines
        return next((lines[path[:end]] for end in range(len(path), -1, -1) if path[:end] in lines), 0)

    def domain(self) -> tuple[str, Descriptor]:
        """Return the name and the descriptors of the file's domain."""
        root = self._fields(self._source.value, (), ROOT)
        name = root.get("domain")
        if not isinstance(name, str) or not name:
            self.error(("domain",), "the domain needs a name: write for instance `domain: edge`")
            name = ""
        domain = Descriptor()
        self._fill(domain, root.get("descriptors"), ("descriptors",))
        return name, domain

    def _fill(self, parent: Descriptor, given: object, path: Path_) -> None:
        if given is None:
            return
        if not isinstance(given, list):
            self.error(path, f"expected a list of descriptors; got {shown(given)}")
            return
        for place, each in enumerate(given):
            self._descriptor(parent, each, (*path, place))

    def _descriptor(self, parent: Descriptor, given: object, path: Path_) -> None:
        fields = self._fields(given, path, DESCRIPTOR)
        key, value = self._text(fields, path, "key"), self._text(fields, path, "value")
        if not key:
            self.error(path, "a descriptor needs a `key`")
        if "*" in key:
            self.error((*path, "key"), "`*` is a wildcard in a `value` only")
        for name in IDLE:
            if fields.get(name) not in (None, "false"):
                self.notes.append(f"{self._source.where((*path, name))}`{name}` is read and does nothing")
        shares = self._flag(fields, path, "share_threshold")
        if shares and "*" not in value:
            self.error((*path, "share_threshold"), "`share_threshold` needs a `value` with `*`")
        below = Descriptor(self._rule(fields, path), value, shares)
        if not parent.add(key, below) and key:
            self.error(path, f"the descriptor {shown(key)} {shown(value) if value else 'without value'} is given twice")
        self._fill(below, fields.get("descriptors"), (*path, "descriptors"))

    def _rule(self, descriptor: Mapping[str, Any], path: Path_) -> Rule | None:
        shadow = self._flag(descriptor, path, "shadow_mode")
        quota = self._flag(descriptor, path, "quota_mode")
        if descriptor.get("rate_limit") is None:
            return None
        path = (*path, "rate_limit")
        fields = self._fields(descriptor["rate_limit"], path, RATE_LIMIT)
        name, replaces = self._text(fields, path, "name"), self._replaces(fields, path)
        if name and name in replaces:
            self.error((*path, "replaces"), "a limit cannot replace itself")
        rule = Rule(0, 0, None, False, shadow, quota, name, replaces)
        if self._flag(fields, path, "unlimited"):
            if "unit" in fields:
                self.error((*path, "unit"), "an unlimited descriptor has no unit: leave one of the two out")
            return rule._replace(unlimited=True)
        return self._counting(rule, fields, path)

    def _counting(self, rule: Rule, fields: Mapping[str, Any], path: Path_) -> Rule:
        """Return the rule with its numbers."""
        unit = self._text(fields, path, "unit").lower()
        if unit not in UNITS:
            self.error((*path, "unit"), f"`unit` must be one of {listed(UNITS)}; got {shown(fields.get('unit'))}")
        amount = self._number(fields, path, "requests_per_unit", 0)
        burst = self._number(fields, path, "burst", 1) if "burst" in fields else None
        algorithm = self._text(fields, path, "algorithm") or self._algorithm
        if unit not in UNITS or amount is None:
            return rule
        number, seconds = UNITS[unit]
        rule = rule._replace(requests_per_unit=amount, unit=number)
        return rule._replace(limit=self._limit(amount, seconds, burst, algorithm, path)) if amount else rule

    def _limit(self, amount: int, seconds: int, burst: int | None, algorithm: str, path: Path_) -> Limit | None:
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            try:
                limit = Limit(amount, seconds, burst=burst, algorithm=algorithm)
            except InvalidLimit as reason:
                self.error(path, str(reason))
                return None
        self.notes += [f"{self._source.where(path)}{each.message}" for each in warned]
        if limit.in_flight:
            self.error((*path, "algorithm"), "a limit in flight has no end here: Envoy does not tell when it is over")
        return limit

    def _replaces(self, fields: Mapping[str, Any], path: Path_) -> tuple[str, ...]:
        given = fields.get("replaces")
        path = (*path, "replaces")
        if given is None:
            return ()
        if not isinstance(given, list):
            self.error(path, f"expected a list such as `- name: other`; got {shown(given)}")
            return ()
        names = [
            self._text(self._fields(each, (*path, at), ("name",)), (*path, at), "name") for at, each in enumerate(given)
        ]
        if "" in names:
            self.error(path, "an entry of `replaces` needs the `name` of a limit")
        return tuple(names)

    def _fields(self, value: object, path: Path_, known: Collection[str]) -> Mapping[str, Any]:
        if not isinstance(value, Mapping):
            self.error(path, f"expected fields ({', '.join(known)}); got {shown(value)}")
            return {}
        for name in value:
            if name not in known:
                self.error((*path, name), f"unknown field {shown(name)}; {suggestion(name, known)}")
        return value

    def _text(self, fields: Mapping[str, Any], path: Path_, name: str) -> str:
        value = fields.get(name)
        if value is None or isinstance(value, str):
            return value or ""
        self.error((*path, name), f"`{name}` must be a word; got {shown(value)}")
        return ""

    def _flag(self, fields: Mapping[str, Any], path: Path_, name: str) -> bool:
        value = fields.get(name)
        if value is not None and str(value).lower() not in ("true", "false"):
            self.error((*path, name), f"`{name}` must be true or false; got {shown(value)}")
        return str(value).lower() == "true"

    def _number(self, fields: Mapping[str, Any], path: Path_, name: str, least: int) -> int | None:
        value = fields.get(name)
        if isinstance(value, str) and re.fullmatch("[0-9]{1,10}", value) and least <= int(value) <= MOST:
            return int(value)
        hint = "; write 0 to refuse everything" if value is None and least == 0 else ""
        self.error((*path, name), f"`{name}` must be a whole number from {least} to {MOST}; got {shown(value)}{hint}")
        return None
