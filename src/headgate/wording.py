"""What messages have in common: no password, the nearest word, what to install, and `headgate` in front of logs."""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, Iterable, Mapping, MutableMapping
from difflib import get_close_matches
from itertools import islice
from typing import Any, Final

HIDDEN: Final = "***"
MOST_LISTED: Final = 20
_RUN: Final = re.compile(r"[^\s'\"]+")
_IN_QUERY: Final = re.compile(r"(password=)[^&]*", re.IGNORECASE)
_WORDS: Final = {"algorithm": "by", "burst": "burst", "block": "block", "name": "as"}
"""Arguments of a `Limit`, and how a limit in words says them."""


def without_password(text: str) -> str:
    """A message, or a URL, without what may be a password: everything between `://` and the last @, and in options.

    Too much is hidden rather than too little: a password that nobody escaped may have any character.
    """
    start, end = text.find("://"), text.rfind("@")
    if 0 <= start < end:
        text = f"{text[: start + 3]}{HIDDEN}{text[end:]}"
    if end >= 0:
        text = _RUN.sub(_without_login, text)
    return _IN_QUERY.sub(rf"\g<1>{HIDDEN}", text) if "password=" in text.lower() else text


def _without_login(run: re.Match[str]) -> str:
    """`user:password@host`, also where no scheme is in front of it."""
    login, at, rest = run[0].rpartition("@")
    return f"{HIDDEN}@{rest}" if at and ":" in login and "://" not in login else run[0]


def quoted(value: object, longest: int = 80) -> str:
    """A value as it appears in messages: never long, and never with a password."""
    try:
        text = without_password(repr(value))
    except ValueError:  # a number of more digits than Python writes
        text = f"a {type(value).__name__}"
    return text if len(text) <= longest else f"{text[: longest - 3]}..."


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The one that was probably meant."""
    close = get_close_matches(word[:64], list(known), n=1, cutoff=0.6)
    return close[0] if close else None


def listed(known: Collection[str]) -> str:
    """Names in a message, and no more than a person reads."""
    more = len(known) - MOST_LISTED
    return without_password(", ".join(islice(known, MOST_LISTED))) + (f" and {more} more" if more > 0 else "")


def unknown_argument(called: str, given: Mapping[str, Any], known: Iterable[str], limit: str = "5/minute") -> TypeError:
    """The error for arguments that a call does not have; `limit` is one in words, to show where these are said."""
    name, value = next(iter(given.items()))
    names = list(known)
    if name in _WORDS and _WORDS[name] not in names and limit:
        return TypeError(f"{called}() has no argument {name!r}: write '{limit} {_WORDS[name]} {value}'")
    near = nearest(name, names)
    hint = f"did you mean {near!r}?" if near else f"there are {listed(names)}"
    return TypeError(f"{called}() has no argument {name!r}; {hint}")


def missing(what: str, package: str, extra: str = "") -> str:
    """How to install what is not there."""
    clone = f"pip install '.[{extra}]' in a clone of Headgate, or " if extra else ""
    return f"{what} needs {package}: {clone}pip install {package}"


class Log(logging.LoggerAdapter[logging.Logger]):
    """A log whose lines begin with `headgate`: where no handler is set up, Python writes the bare text."""

    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:  # noqa: ANN401
        """The line."""
        return f"headgate: {msg}", kwargs


def log_of(name: str) -> Log:
    """The log of this name."""
    return Log(logging.getLogger(name), {})
