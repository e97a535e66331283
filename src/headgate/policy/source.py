"""Read a policy from a YAML, TOML or JSON file or a Python value, with line numbers if the parser gives them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from stat import S_ISREG
from typing import Any, Final, NamedTuple

from headgate.errors import InvalidPolicy
from headgate.policy.lines import Path_, lines_of
from headgate.policy.toml_source import read_toml
from headgate.policy.yaml_source import INSTALLED, Bounds, NotYaml, TooLarge, read_yaml
from headgate.wording import missing

LARGEST: Final = 1_000_000
"""The most bytes of a policy file."""
MOST_NODES: Final = 50_000
"""The most values in a policy with aliases expanded: a small file must not expand to a huge policy."""
DEEPEST: Final = 64
_TOO_LARGE: Final = f"too large: at most {MOST_NODES} values, {DEEPEST} deep"


class Source(NamedTuple):
    """A policy as plain values."""

    name: str
    value: Any
    lines: Mapping[Path_, int]
    """The line of each value, if the parser of the format gives it."""
    decorator: str | None = None
    """The decorator that was given the only rule, such as `limited()`; None for a policy."""

    def __repr__(self) -> str:
        """Leave out the values: they contain the URLs of stores."""
        return f"Source({self.name!r})"

    def where(self, path: Path_) -> str:
        """Return `policy.yaml:12: `, without the parts that are not known."""
        line = next((self.lines[path[:end]] for end in range(len(path), -1, -1) if path[:end] in self.lines), None)
        return f"{self.name}:{line}: " if line is not None else f"{self.name}: " if self.name else ""

    def place(self, path: Path_) -> str:
        """Return `policy.yaml:12: rules[0].match: ` or `limited(): match: `, without unknown parts."""
        head = self.where(path)
        if self.decorator is not None and path[:2] == ("rules", 0):
            head, path = f"{self.decorator}: " if self.decorator else "", path[2:]
        words = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path).lstrip(".")
        return head + (f"{words}: " if words else "")


def read_source(given: str | Path | Mapping[str, Any]) -> Source:
    """Read a file by its suffix, or take a Python value as it is."""
    if isinstance(given, Mapping):
        _check_size(given)
        return Source("", given, {})
    path = Path(given)
    try:
        data = _read_file(path)
        text = data.decode("utf-8") if len(data) <= LARGEST else ""
    except (OSError, ValueError) as reason:  # ValueError: an impossible file name, or bytes that are not UTF-8
        raise InvalidPolicy([f"{path}: cannot be read: {reason}"]) from None
    if len(data) > LARGEST:
        raise InvalidPolicy([f"{path}: a policy may have at most {LARGEST} bytes"])
    if path.suffix.lower() not in _READERS:
        raise InvalidPolicy([f"{path}: a policy must be a .yaml, .toml or .json file"])
    return read_text(path.name, text)


def read_text(name: str, text: str) -> Source:
    """Parse the text of a file by the suffix of its name."""
    return _READERS[Path(name).suffix.lower()](name, text.replace("\r\n", "\n").replace("\r", "\n"))


def _read_file(path: Path) -> bytes:
    """Read at most one byte more than a policy may have: the file may grow while it is read."""
    if not S_ISREG(path.stat().st_mode):
        raise OSError("this is not a regular file")
    with path.open("rb") as file:
        return file.read(LARGEST + 1)


def _read_toml(name: str, text: str) -> Source:
    value = read_toml(name, text, DEEPEST)
    _check_size(value, name)
    return Source(name, value, {})


def _read_json(name: str, text: str) -> Source:
    try:
        value = json.loads(text)
    except json.JSONDecodeError as reason:
        raise InvalidPolicy([f"{name}:{reason.lineno}: not JSON: {reason.msg}"]) from None
    except RecursionError:
        raise InvalidPolicy([f"{name}: nested too deeply"]) from None
    except ValueError as reason:
        raise InvalidPolicy([f"{name}: not JSON: {reason}"]) from None
    _check_size(value, name)
    lines, twice = lines_of(text)
    if twice:
        raise InvalidPolicy([f"{name}:{line}: {field!r} is given twice" for line, field in twice])
    return Source(name, value, lines)


def _check_size(value: object, name: str = "") -> None:
    """Raise `InvalidPolicy` for a value that is too large or too deep. A loop, as recursion could overflow."""
    told = f"{name}: " if name else ""
    waiting: list[tuple[object, int]] = [(value, 0)]
    count = 0
    while waiting:
        each, depth = waiting.pop()
        count += 1
        if count > MOST_NODES or depth > DEEPEST:
            raise InvalidPolicy([f"{told}{_TOO_LARGE}"])
        inside = each.values() if isinstance(each, Mapping) else each if isinstance(each, list | tuple) else ()
        waiting += [(child, depth + 1) for child in inside]


def _read_yaml(name: str, text: str) -> Source:
    if not INSTALLED:
        raise InvalidPolicy([f"{name}: {missing('YAML', 'PyYAML', 'yaml')}; or write TOML or JSON"])
    try:
        value, lines, errors = read_yaml(text, Bounds(MOST_NODES, DEEPEST))
    except TooLarge as reason:
        raise InvalidPolicy([f"{name}:{reason.line}: {_TOO_LARGE}"]) from None
    except NotYaml as reason:
        line = "" if reason.line is None else f":{reason.line}"
        raise InvalidPolicy([f"{name}{line}: not YAML: {reason.problem}"]) from None
    if errors:
        raise InvalidPolicy([f"{name}:{line}: {error}" for line, error in sorted(errors)])
    return Source(name, value, lines)


_READERS: Final = {".yaml": _read_yaml, ".yml": _read_yaml, ".toml": _read_toml, ".json": _read_json}

__all__ = ["Path_", "Source", "read_source", "read_text"]
