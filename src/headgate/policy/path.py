"""Patterns of paths and hosts: `/api/**`, `/users/{id}`, `/files/*.png`; `*.example.com`.

`*` matches any text within a segment, `**` any number of segments, `{name}` one segment that a key can use,
`{name:path}` the rest. A path is compared without doubled slashes and without a slash or a line break at its end, so
that `//login`, `/login/` and `/login%0A` do not escape a rule for `/login`. Case matters. The time is proportional to
the length of the path, however hostile it is, and the whole path is compared, however long: neither helps a client to
escape a rule.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from itertools import product
from typing import Final, NamedTuple
from urllib.parse import urlparse

LONGEST: Final = 1024
LONGEST_NAME: Final = 253
"""Characters of a name, by RFC 1035."""
_NAME: Final = re.compile(r"\{([A-Za-z_][A-Za-z0-9_]*)(:path)?\}")
_SLASHES: Final = re.compile(r"/{2,}")
_ANY: Final = "\0"
"""A text that only a wildcard matches."""

Test = Callable[[str], bool]


class Segment(NamedTuple):
    """The test for one segment, and its name."""

    fits: Test
    name: str | None = None


class Pattern(NamedTuple):
    """A compiled pattern: the segments before, between and after its `**`."""

    text: str
    first: str | None
    """The first segment if it is plain text: rules are indexed by it."""
    names: tuple[str, ...]
    head: tuple[Segment, ...]
    middle: tuple[Segment, ...]
    tail: tuple[Segment, ...]
    stars: int
    rest: str | None
    """The name in `{name:path}`; None without one."""
    regex: re.Pattern[str] | None
    """The same test as a regular expression, for patterns that need no backtracking; None for others."""

    def match(self, path: str) -> dict[str, str] | None:
        """Return the named segments of a path; None if the path does not match."""
        return self.fit(tidy(path))

    def fit(self, path: str) -> dict[str, str] | None:
        """Like `match`, for a path in the form of `tidy`."""
        if self.regex is None:
            return self._fit_slowly(path)
        found = self.regex.fullmatch(path)
        return None if found is None else found.groupdict()

    def fits(self, path: str) -> bool:
        """Whether a path in the form of `tidy` matches."""
        if self.regex is None:
            return self._fit_slowly(path) is not None
        return self.regex.fullmatch(path) is not None

    def fits_all_of(self, other: Pattern) -> bool:
        """Whether this pattern matches every path that the other matches."""
        if not self.fits(_shortest(other.text)):  # true of most pairs
            return False
        most = len(self.head) + len(self.middle) + len(self.tail) + 1  # more than the segments beside `**` can match
        return all(self.fits(path) for path in _examples(other.text, most))

    def _fit_slowly(self, path: str) -> dict[str, str] | None:
        given = path[1:].split("/")
        least = len(self.head) + len(self.middle) + len(self.tail)
        if len(given) < least or (len(given) > least and not self.stars and self.rest is None):
            return None
        found: dict[str, str] = {}
        if not _fits(self.head, given, 0, found):
            return None
        end = len(given) - len(self.tail)
        if not _fits(self.tail, given, end, found):
            return None
        if self.rest is not None:
            rest = "/".join(given[len(self.head) :])
            return {**found, self.rest: rest} if rest else None
        if self.middle:
            last = end - len(self.middle)
            places = range(len(self.head), last + 1)
            if not any(_fits(self.middle, given, place, found) for place in places):
                return None
        return found


def _fits(segments: Sequence[Segment], given: list[str], start: int, found: dict[str, str]) -> bool:
    for at, segment in enumerate(segments, start):
        if not segment.fits(given[at]):
            return False
    found.update({segment.name: given[start + at] for at, segment in enumerate(segments) if segment.name})
    return True


def compile_pattern(text: str) -> Pattern:
    """Compile a pattern; raise ValueError for a wrong one."""
    if not isinstance(text, str) or not text.startswith(("/", "**")):
        raise ValueError(f"a path must begin with /, as in /api/**; got {text!r}")
    if len(text) > LONGEST:
        raise ValueError(f"a path pattern has at most {LONGEST} characters")
    words = _words(text)
    if words.count("**") > 2:
        raise ValueError(f"a path pattern has at most two **; got {text!r}")
    rest = _NAME.fullmatch(words[-1])
    called = rest[1] if rest is not None and rest[2] else None
    parts: list[list[Segment]] = [[]]
    for word in words[:-1] if called else words:
        if word == "**":
            parts.append([])
        else:
            parts[-1].append(_segment(word, text))
    if called and len(parts) > 1:
        raise ValueError(f"{{{called}:path}} matches the rest of a path, so ** cannot come before it; got {text!r}")
    names = [segment.name for part in parts for segment in part if segment.name] + ([called] if called else [])
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"{{{name}}} occurs twice in {text!r}")
    plain = bool(words[0]) and not any(mark in words[0] for mark in "*{")
    head, middle, tail = parts[0], parts[1] if len(parts) == 3 else [], parts[-1] if len(parts) > 1 else []
    stars = len(parts) - 1
    simple = not middle and not tail
    return Pattern(
        text=text,
        first=words[0] if plain else None,
        names=tuple(names),
        head=tuple(head),
        middle=tuple(middle),
        tail=tuple(tail),
        stars=stars,
        rest=called,
        regex=_regex(words, called) if simple else None,
    )


def _regex(words: Sequence[str], rest: str | None) -> re.Pattern[str] | None:
    """Return a regex that reads the path once: no segment crosses a slash. None if a segment has several `*`."""
    written = []
    for word in words:
        if word == "**":
            written.append("(?:/.*)?")
        elif rest is not None and word is words[-1]:
            written.append(f"/(?P<{rest}>.+)")
        elif word.count("*") > 1:
            return None
        elif word.startswith("{"):
            written.append(f"/(?P<{word[1:-1]}>[^/]+)")
        else:
            written.append("/" + re.escape(word).replace(r"\*", "[^/]*"))
    return re.compile("".join(written), re.DOTALL)


def _segment(word: str, text: str) -> Segment:
    named = _NAME.fullmatch(word)
    if named is not None and not named[2]:
        return Segment(bool, named[1])
    if named is not None:
        raise ValueError(f"{word} matches the rest of a path, so it must be at the end; got {text!r}")
    if "{" in word or "}" in word:
        raise ValueError(f"a {{name}} must be a whole segment, as in /users/{{id}}; got {text!r}")
    if "**" in word:
        raise ValueError(f"** must be a whole segment, as in /api/**; got {text!r}")
    return Segment(glob(word) if "*" in word else word.__eq__)


def glob(word: str) -> Test:
    """Return a test for `*.png`: first and last piece at the ends, the others in order; one search for each."""
    start, *between, end = word.split("*")

    def fits(given: str) -> bool:
        if len(given) < len(start) + len(end) or not given.startswith(start) or not given.endswith(end):
            return False
        at, last = len(start), len(given) - len(end)
        for piece in between:
            at = given.find(piece, at, last)
            if at < 0:
                return False
            at += len(piece)
        return True

    return fits


@lru_cache(maxsize=8192)
def _shortest(text: str) -> str:
    return next(_examples(text, 1))


def _examples(text: str, most: int) -> Iterator[str]:
    """Yield paths that represent all matching ones: any text for a wildcard, up to `most` segments for `**`."""
    choices = []
    for word in _words(text):
        named = _NAME.fullmatch(word)
        if word == "**" or (named is not None and named[2]):
            choices.append([[_ANY] * count for count in range(named is not None, most + 1)])
        else:
            choices.append([[_ANY if named is not None else word.replace("*", _ANY)]])
    for chosen in product(*choices):
        yield "/" + "/".join(segment for segments in chosen for segment in segments)


def _words(text: str) -> list[str]:
    return tidy(text if text.startswith("/") else f"/{text}")[1:].split("/")


def tidy(path: str) -> str:
    """Return a path as it is compared."""
    if path[:1] != "/":  # like Werkzeug, if a server accepts such a path
        path = f"/{_target(path)}"
    if path[-1] == "\n":  # Starlette routes `/login%0A` as `/login`: the `$` of its patterns fits before a line break
        path = path[:-1]
    if "//" in path:
        path = _SLASHES.sub("/", path)
    return path[:-1] if len(path) > 1 and path[-1] == "/" else path


def _target(path: str) -> str:
    """Return the path of `http://example.com/login`: some servers pass the URL on, and Quart routes it as `/login`."""
    try:
        return urlparse(path).path
    except ValueError:  # not a URL: no framework routes it
        return path


def plain_host(text: str) -> str:
    """Return a host as it is compared and counted: in lower case, without a port or a final dot.

    A client chooses these: `API.example.com.:443` is `api.example.com`, for conditions and for keys.
    """
    host = text.lower()
    if host.startswith("["):
        return host.partition("]")[0] + "]" if "]" in host else host
    return host.partition(":")[0].removesuffix(".")


def compile_host(text: str) -> Callable[[str], bool]:
    """Return a test for hosts in the form of `plain_host`; raise ValueError for a wrong pattern."""
    host = plain_host(text)
    if not host or len(text) > LONGEST_NAME:
        raise ValueError(
            f"a host must have from 1 to {LONGEST_NAME} characters, as in *.example.com; got {text[:40]!r}"
        )
    if host != text.lower().removesuffix("."):
        raise ValueError(f"a host is compared without its port: write {host}; got {text!r}")
    return glob(host) if "*" in host else host.__eq__
