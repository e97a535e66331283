"""Read a policy from a YAML, TOML or JSON file or a Python value, with line numbers if the parser gives them."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from stat import S_ISREG
from typing import Any, Final, NamedTuple

from headgate.errors import InvalidPolicy
from headgate.policy.field_types import Path_
from headgate.policy.yaml_source import INSTALLED, Bounds, NotYaml, TooLarge, read_yaml
from headgate.wording import missing

LARGEST: Final = 1_000_000
"""The most bytes of a policy file."""
MOST_NODES: Final = 50_000
"""The most values in a policy with aliases expanded: a small file must not expand to a huge policy."""
DEEPEST: Final = 64
_TOO_LARGE: Final = f"too large: at most {MOST_NODES} values, {DEEPEST} deep"

_SIGN: Final = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|[{}\[\]:,\n]|[^"{}\[\]:,\s]+')
_TOKEN: Final = re.compile(
    r'''(?P<none>"""[^"\\]*(?:(?:\\(?:.|\Z)|"(?!""))[^"\\]*)*(?:"""|\Z)|'''
    r"""'{3}[^']*(?:'(?!'')[^']*)*(?:'{3}|\Z)|#[^\n]*|[^"'#A-Za-z0-9_. \t-]+)|"""
    r"""(?P<part>"[^"\\\n]*(?:\\[^\n][^"\\\n]*)*"?|'[^'\n]*'?|[A-Za-z0-9_-]+|[ \t]+)|(?P<dot>\.)""",
    re.DOTALL,
)
"""The parts of a key, its dots, and everything else: comments, brackets, long strings. Every text splits into these."""


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
    text = _text_of(path)
    if path.suffix.lower() not in _READERS:
        raise InvalidPolicy([f"{path}: a policy must be a .yaml, .toml or .json file"])
    return read_text(path.name, text)


def read_words(path: Path) -> Source:
    """Read a YAML file whose values are texts, as in files of envoyproxy/ratelimit."""
    return _read_yaml(path.name, _same_lines(_text_of(path)), words=True)


def _text_of(path: Path) -> str:
    try:
        data = _read_file(path)
        text = data.decode("utf-8") if len(data) <= LARGEST else ""
    except UnicodeDecodeError as reason:
        line = _same_lines(data[: reason.start].decode("utf-8")).count("\n") + 1
        raise InvalidPolicy([f"{path.name}:{line}: not UTF-8: found the byte 0x{data[reason.start]:02x}"]) from None
    except (OSError, ValueError) as reason:  # ValueError: an impossible file name
        raise InvalidPolicy([f"{path}: cannot be read: {reason}"]) from None
    if len(data) > LARGEST:
        raise InvalidPolicy([f"{path}: a policy may have at most {LARGEST} bytes"])
    return text


def read_text(name: str, text: str) -> Source:
    """Parse the text of a file by the suffix of its name."""
    return _READERS[Path(name).suffix.lower()](name, _same_lines(text))


def _same_lines(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _read_file(path: Path) -> bytes:
    """Read at most one byte more than a policy may have: the file may grow while it is read."""
    if not S_ISREG(path.stat().st_mode):
        raise OSError("this is not a regular file")
    with path.open("rb") as file:
        return file.read(LARGEST + 1)


def _read_toml(name: str, text: str) -> Source:
    """Parse TOML; its parser gives line numbers for syntax errors only."""
    deep = line_of_dots(text, DEEPEST)
    if deep is not None:  # the parser's time grows with the square of the dots
        raise InvalidPolicy([f"{name}:{deep}: too large: a key has at most {DEEPEST} dots"])
    try:
        value = tomllib.loads(text)
    except tomllib.TOMLDecodeError as reason:
        said, _, at = str(reason).rpartition(" (at ")
        found = re.match(r"line (\d+)", at)
        line = int(found[1]) if found else len(text.rstrip().splitlines())  # the end of the document
        raise InvalidPolicy([f"{name}:{line}: not TOML: {said or reason}"]) from None
    except (ValueError, RecursionError) as reason:
        raise InvalidPolicy([f"{name}: not TOML: {reason}"]) from None
    _check_size(value, name)
    return Source(name, value, {})


def line_of_dots(text: str, most: int) -> int | None:
    """Return the line of the first key with more than `most` dots, also in invalid TOML."""
    dots = 0
    for found in _TOKEN.finditer(text):
        kind = found.lastgroup
        dots = dots + 1 if kind == "dot" else dots if kind == "part" else 0
        if dots > most:
            return text.count("\n", 0, found.start()) + 1
    return None


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


class _Inside:
    """An object or a list that is open."""

    __slots__ = ("key", "names", "path", "place")

    def __init__(self, path: Path_, names: set[str] | None) -> None:
        self.path = path
        self.names = names
        """The names of an object so far; None in a list."""
        self.key: str | None = None
        """The name whose value comes next; None where a name comes next."""
        self.place = 0


def lines_of(text: str) -> tuple[dict[Path_, int], list[tuple[int, str]]]:
    """Return the line of every value in JSON, and line and name of every field that an object has twice.

    Python's parser does not give lines. It has parsed the text before, so the syntax is valid; each token is visited
    once.
    """
    lines: dict[Path_, int] = {}
    twice: list[tuple[int, str]] = []
    line, around = 1, [_Inside((), None)]
    for sign in _SIGN.findall(text):
        inside = around[-1]
        if sign == "\n":
            line += 1
        elif sign in ("}", "]"):
            around.pop()
        elif sign == ",":
            inside.place += 1
            inside.key = None
        elif sign == ":":
            pass
        elif inside.names is not None and inside.key is None:
            inside.key = json.loads(sign)
            if inside.key in inside.names:
                twice.append((line, inside.key))
            inside.names.add(inside.key)
        else:
            own = () if len(around) == 1 else (inside.place if inside.key is None else inside.key,)
            path = (*inside.path, *own)
            lines[path] = line
            if sign in ("{", "["):
                around.append(_Inside(path, set() if sign == "{" else None))
    return lines, twice


def _check_size(value: object, name: str = "") -> None:
    """Raise `InvalidPolicy` for a value that is too large or too deep. A loop, as recursion could overflow."""
    place = f"{name}: " if name else ""
    waiting: list[tuple[object, int]] = [(value, 0)]
    count = 0
    while waiting:
        each, depth = waiting.pop()
        count += 1
        if count > MOST_NODES or depth > DEEPEST:
            raise InvalidPolicy([f"{place}{_TOO_LARGE}"])
        inside = each.values() if isinstance(each, Mapping) else each if isinstance(each, list | tuple) else ()
        waiting += [(child, depth + 1) for child in inside]


def _read_yaml(name: str, text: str, words: bool = False) -> Source:
    if not INSTALLED:
        raise InvalidPolicy([f"{name}: {missing('YAML', 'PyYAML', 'yaml')}; or write TOML or JSON"])
    try:
        value, lines, errors = read_yaml(text, Bounds(MOST_NODES, DEEPEST), words)
    except TooLarge as reason:
        raise InvalidPolicy([f"{name}:{reason.line}: {_TOO_LARGE}"]) from None
    except NotYaml as reason:
        line = "" if reason.line is None else f":{reason.line}"
        raise InvalidPolicy([f"{name}{line}: not YAML: {reason.problem}"]) from None
    if errors:
        raise InvalidPolicy([f"{name}:{line}: {error}" for line, error in sorted(errors)])
    return Source(name, value, lines)


_READERS: Final = {".yaml": _read_yaml, ".yml": _read_yaml, ".toml": _read_toml, ".json": _read_json}

__all__ = ["Path_", "Source", "read_source", "read_text", "read_words"]
