"""Path patterns: `/api/**`, `/users/{id}`, `/files/*.png`.

`*` is anything within a segment, `**` any number of segments, `{name}` one segment that a key can use, `{name:path}`
the rest. A path is compared without doubled slashes and without one at its end, so that `//login` and `/login/` do not
slip past a rule for `/login`. Letters are compared as they are.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

_TOKEN: Final = re.compile(r"\*\*|\*|\{([A-Za-z_][A-Za-z0-9_]*)(:path)?\}")
_SLASHES: Final = re.compile(r"/{2,}")
LONGEST: Final = 1024


class Pattern(NamedTuple):
    """A compiled pattern."""

    text: str
    first: str | None
    """Its first segment, where that is plain text: rules are found by it."""
    regex: re.Pattern[str]
    names: tuple[str, ...]


def compile_pattern(text: str) -> Pattern:
    """Compile, or a ValueError that says what is wrong."""
    if not isinstance(text, str) or not text.startswith(("/", "**")):
        raise ValueError(f"a path begins with /, as in /api/**; got {text!r}")
    if len(text) > LONGEST:
        raise ValueError(f"a path pattern has at most {LONGEST} characters")
    if text.count("**") > 2:
        raise ValueError(f"a path pattern has at most two **; got {text!r}")
    names: list[str] = []
    parts: list[str] = []
    at = 0
    plain = tidy(text) if "**" not in text else text
    for token in _TOKEN.finditer(plain):
        parts.append(_literal(plain[at : token.start()]))
        at = token.end()
        if token[0] == "**":
            before = parts[-1]
            if before.endswith("/"):  # `/api/**` is also `/api` itself
                parts[-1] = before[:-1]
                parts.append("(?:/.*)?")
            else:
                parts.append(".*")
        elif token[0] == "*":
            parts.append("[^/]*")
        else:
            if token[1] in names:
                raise ValueError(f"{{{token[1]}}} stands twice in {text!r}")
            names.append(token[1])
            parts.append(f"(?P<{token[1]}>{'.+' if token[2] else '[^/]+'})")
    parts.append(_literal(plain[at:]))
    first = plain.split("/")[1] if plain.startswith("/") else ""
    literal = first if first and not _TOKEN.search(first) else None
    return Pattern(text, literal, re.compile("".join(parts), re.DOTALL), tuple(names))


def _literal(text: str) -> str:
    if "{" in text or "}" in text:
        raise ValueError(f"{text!r} has a brace that is no {{name}}")
    return re.escape(text).replace(re.escape("/"), "/")


def tidy(path: str) -> str:
    """A path as it is compared."""
    if "//" in path:
        path = _SLASHES.sub("/", path)
    return path[:-1] if len(path) > 1 and path[-1] == "/" else path or "/"
