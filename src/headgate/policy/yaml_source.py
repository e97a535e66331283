"""Read YAML event by event into values and their lines, without PyYAML's tree of nodes.

The tree has ten objects for each value. A policy of thousands of rules is read while requests are answered, and those
requests would wait for the garbage collector to visit all of these objects.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Final, NamedTuple

from headgate.policy.field_types import Path_

try:
    import yaml
except ImportError:  # an extra: TOML, JSON and Python values need no library
    yaml = None  # type: ignore[assignment]

LONGEST_NUMBER: Final = 64
"""The most characters of a value that is not text: PyYAML multiplies 1:2:3:4 by 60 once for each colon."""
INSTALLED: Final = yaml is not None
_STRING: Final = "tag:yaml.org,2002:str"
_NULL: Final = "tag:yaml.org,2002:null"


class Bounds(NamedTuple):
    """The most values and levels of a policy."""

    values: int
    deep: int


class TooLarge(Exception):
    """The policy exceeds its bounds at this line."""

    def __init__(self, line: int) -> None:
        super().__init__(line)
        self.line = line


class NotYaml(Exception):
    """A syntax error that PyYAML found, with its line if PyYAML gives one."""

    def __init__(self, line: int | None, problem: str) -> None:
        super().__init__(line, problem)
        self.line, self.problem = line, problem


class _Anchor(NamedTuple):
    """The value that `*name` refers to."""

    value: Any
    word: str | None
    """The text of a single value: an alias may be the name of a field too."""
    values: int
    levels: int


def read_yaml(text: str, bounds: Bounds, words: bool = False) -> tuple[Any, dict[Path_, int], list[tuple[int, str]]]:
    """Return the value, the line of each value in it, and errors with their lines.

    With `words`, every value but null is the text in the file: 1.10 is not a number, and `no` is not False.
    """
    try:
        builder = _Builder(text, bounds, words)
        return builder.document(), builder.lines, builder.errors
    except yaml.reader.ReaderError as reason:  # which knows the place in the text, and not the line
        at = text.count("\n", 0, reason.position) + 1
        raise NotYaml(at, f"the character #x{reason.character:04x} is not allowed") from None
    except yaml.YAMLError as reason:
        mark = getattr(reason, "problem_mark", None)
        line = mark.line + 1 if mark is not None else None
        raise NotYaml(line, getattr(reason, "problem", None) or str(reason)) from None


@cache
def _loader() -> Any:  # noqa: ANN401 - PyYAML may not be there
    """Return PyYAML's loader with a bound on open brackets: it visits each of them again for every token."""

    class Loader(yaml.SafeLoader):
        deepest = 0

        def fetch_flow_collection_start(self, token: Any) -> None:  # noqa: ANN401
            if self.flow_level > self.deepest:
                raise TooLarge(self.line + 1)
            super().fetch_flow_collection_start(token)

    return Loader


class _Builder:
    """Builds the value from the events."""

    def __init__(self, text: str, bounds: Bounds, words: bool) -> None:
        self.lines: dict[Path_, int] = {}
        self.errors: list[tuple[int, str]] = []
        self._bounds = bounds
        self._words = words
        self._count = 0
        self._anchors: dict[str, _Anchor | None] = {}
        """None for an anchor whose value is incomplete: an alias to it would contain itself."""
        self._loader = _loader()(text)
        self._loader.deepest = bounds.deep

    def document(self) -> Any:  # noqa: ANN401
        """Return the value of the only document."""
        loader = self._loader
        loader.get_event()
        if loader.check_event(yaml.StreamEndEvent):
            return None
        loader.get_event()
        value, _ = self._build(())
        loader.get_event()
        if not loader.check_event(yaml.StreamEndEvent):
            mark = loader.get_event().start_mark
            raise yaml.MarkedYAMLError(problem="found a second document", problem_mark=mark)
        return value

    def _build(self, path: Path_) -> tuple[Any, int]:
        """Return the next value and the number of levels below it."""
        event = self._loader.get_event()
        line = event.start_mark.line + 1
        if isinstance(event, yaml.AliasEvent):
            anchor = self._known(event)
            self._grow(anchor.values, len(path) + anchor.levels, line)
            self.lines[path] = line
            return anchor.value, anchor.levels
        self._grow(1, len(path), line)
        self.lines[path] = line
        if event.anchor is not None:
            self._open(event)
        before, word = self._count - 1, None
        if isinstance(event, yaml.ScalarEvent):
            value, levels, word = self._scalar(event), 0, event.value
        elif isinstance(event, yaml.SequenceStartEvent):
            value, levels = self._sequence(path)
        else:
            value, levels = self._mapping(path)
        if event.anchor is not None:
            self._anchors[event.anchor] = _Anchor(value, word, self._count - before, levels)
        return value, levels

    def _sequence(self, path: Path_) -> tuple[list[Any], int]:
        built: list[Any] = []
        levels = 0
        while not self._loader.check_event(yaml.SequenceEndEvent):
            value, below = self._build((*path, len(built)))
            built.append(value)
            levels = max(levels, below + 1)
        self._loader.get_event()
        return built, levels

    def _mapping(self, path: Path_) -> tuple[dict[str, Any], int]:
        built: dict[str, Any] = {}
        levels = 0
        while not self._loader.check_event(yaml.MappingEndEvent):
            line = self._loader.peek_event().start_mark.line + 1
            name = self._name(path)
            value, below = self._build((*path, name or ""))
            levels = max(levels, below + 1)
            if name is None:
                self.errors.append((line, "the name of a field must be a word"))
            elif name in built:
                self.errors.append((line, f"{name!r} is given twice"))
            else:
                built[name] = value
        self._loader.get_event()
        return built, levels

    def _name(self, path: Path_) -> str | None:
        """Return the name of a field as it is written; None if it is not a word."""
        event = self._loader.peek_event()
        if isinstance(event, yaml.AliasEvent):
            return self._known(self._loader.get_event()).word
        if not isinstance(event, yaml.ScalarEvent):
            self._build((*path, ""))
            return None
        self._loader.get_event()
        if event.anchor is not None:
            self._open(event)
            self._anchors[event.anchor] = _Anchor(self._scalar(event), event.value, 1, 0)
        word: str = event.value
        return word

    def _scalar(self, event: Any) -> Any:  # noqa: ANN401
        tag, line = event.tag, event.start_mark.line + 1
        if tag is None or tag == "!":
            tag = self._loader.resolve(yaml.ScalarNode, event.value, event.implicit)
        if tag == _STRING or (self._words and tag != _NULL):
            return event.value
        if len(event.value) > LONGEST_NUMBER:
            self.errors.append((line, "cannot read this value: it is too long; write text in quotes"))
            return None
        try:
            return self._loader.construct_object(yaml.ScalarNode(tag, event.value, event.start_mark, event.end_mark))
        except yaml.YAMLError:
            raise
        except Exception as reason:  # PyYAML does not wrap Python's own errors
            self.errors.append((line, f"cannot read this value: {reason}"))
            return None

    def _grow(self, values: int, depth: int, line: int) -> None:
        self._count += values
        if self._count > self._bounds.values or depth > self._bounds.deep:
            raise TooLarge(line)

    def _open(self, event: Any) -> None:  # noqa: ANN401
        if event.anchor in self._anchors:
            raise yaml.MarkedYAMLError(problem="second occurrence", problem_mark=event.start_mark)
        self._anchors[event.anchor] = None

    def _known(self, event: Any) -> _Anchor:  # noqa: ANN401
        line = event.start_mark.line + 1
        if event.anchor not in self._anchors:
            problem = f"found undefined alias {event.anchor!r}"
            raise yaml.MarkedYAMLError(problem=problem, problem_mark=event.start_mark)
        anchor = self._anchors[event.anchor]
        if anchor is None:  # it contains itself
            raise TooLarge(line)
        return anchor
