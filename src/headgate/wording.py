"""Helpers for messages: hide passwords, escape, align, suggest the nearest word, name a package, open a log."""

from __future__ import annotations

import functools
import re
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import TYPE_CHECKING, Concatenate, Final, NoReturn, ParamSpec, TypeVar, cast

if TYPE_CHECKING:
    from types import FrameType, FunctionType

    from headgate.logs import Log

HIDDEN: Final = "***"
MOST_LISTED: Final = 20
LONGEST_SHOWN: Final = 80
_RUN: Final = re.compile(r"[^\s'\"]+")
_IN_QUERY: Final = re.compile(r"(password=)[^&]*", re.IGNORECASE)
_WORDS: Final = {"algorithm": "by", "burst": "burst", "block": "block", "name": "as"}
"""Arguments of a `Limit`, and the words for them in a limit's text."""
_OF_REDIS: Final = ("deadline", "connect_timeout", "remember_refusals", "nodes")
P = ParamSpec("P")
R = TypeVar("R")
S = TypeVar("S")


def without_password(text: str) -> str:
    """Hide passwords in a message or a URL: all text between `://` and the last @, logins, and `password=` options.

    It hides too much rather than too little: a password that was not escaped may have any character.
    """
    start, end = text.find("://"), text.rfind("@")
    if 0 <= start < end:
        text = f"{text[: start + 3]}{HIDDEN}{text[end:]}"
    if end >= 0:
        text = _RUN.sub(_without_login, text)
    return _IN_QUERY.sub(rf"\g<1>{HIDDEN}", text) if "password=" in text.lower() else text


def _without_login(run: re.Match[str]) -> str:
    """Hide the login of `user:password@host`, where no scheme precedes it."""
    login, at, rest = run[0].rpartition("@")
    return f"{HIDDEN}@{rest}" if at and ":" in login and "://" not in login else run[0]


def shown(value: object) -> str:
    """Return the repr of a value for a message: shortened, and without a password."""
    try:
        text = without_password(repr(value))
    except ValueError:  # an integer has more digits than Python converts
        text = f"a {type(value).__name__}"
    return text if len(text) <= LONGEST_SHOWN else f"{text[: LONGEST_SHOWN - 3]}..."


def printable(text: str, longest: int | None = None) -> str:
    """Return a text for a terminal: shortened, and with escapes for unprintable characters, which could control it."""
    cut = text if longest is None or len(text) <= longest else f"{text[: longest - 3]}..."
    if cut.isprintable():
        return cut
    return "".join(each if each.isprintable() else ascii(each)[1:-1] for each in cut)


def columns(rows: Sequence[Sequence[str]], words: int = 1) -> list[str]:
    """Align the cells of a table: the first `words` columns to the left, numbers to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            cell.ljust(width) if at < words else cell.rjust(width)
            for at, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def nearest(word: str, known: Iterable[str]) -> str | None:
    """Return the known word that the caller probably meant, or None."""
    from difflib import get_close_matches  # loaded for messages only

    close = get_close_matches(word[:64], list(known), n=1, cutoff=0.6)
    return close[0] if close else None


def listed(known: Collection[str]) -> str:
    """Join names for a message: at most `MOST_LISTED` of them."""
    more = len(known) - MOST_LISTED
    return without_password(", ".join(islice(known, MOST_LISTED))) + (f" and {more} more" if more > 0 else "")


def suggestion(word: str, known: Collection[str]) -> str:
    """Return what to write instead of an unknown word: the word that was probably meant, or else all known words."""
    near = nearest(word, known)
    return f"did you mean {near!r}?" if near else f"use one of {listed(known)}"


def explained(method: Callable[Concatenate[S, P], R]) -> Callable[Concatenate[S, P], R]:
    """Wrap a method: its error about an unknown argument names the method's class, and the argument probably meant."""
    code = cast("FunctionType", method).__code__  # `inspect.signature` reads it too, but is slow to import
    known = list(code.co_varnames[1 : code.co_argcount + code.co_kwonlyargcount])

    @functools.wraps(method)
    def __init__(self: S, *args: P.args, **given: P.kwargs) -> R:  # noqa: N807 - `called` looks for this name
        for name in given:
            if name not in known:
                what = called() if code.co_name == "__init__" else f"{type(self).__name__}.{code.co_name}()"
                limit = args[0] if args else ""
                every = list(dict.fromkeys((*_arguments_of_the_called(), *known)))
                raise TypeError(what + _unknown(name, given[name], every, limit if isinstance(limit, str) else ""))
        return method(self, *args, **given)

    return cast("Callable[Concatenate[S, P], R]", __init__)


def in_limit(name: str, value: object, limit: object = "") -> str:
    """Return how a limit's text has this argument of a `Limit`, for a caller that gave it elsewhere; or nothing."""
    if name not in _WORDS:
        return ""
    if isinstance(limit, str) and limit[:1].isdigit():
        return f"write '{limit} {_WORDS[name]} {value}'"
    return "" if name == "name" else f"write it into the limit, as in '5/minute {_WORDS[name]} {value}'"


def _unknown(name: str, value: object, known: Sequence[str], limit: str) -> str:
    problem = f" has no argument {name!r}"
    if words := in_limit(name, value, limit):
        return f"{problem}: {words}"
    if name in ("limit", "limits") and "default" in known:
        return f"{problem}: write default={value!r}"
    elsewhere = nearest(name, _OF_REDIS) if "store" in known and not nearest(name, known) else None
    if elsewhere:
        return f"{problem}; {elsewhere!r} belongs to a Redis store: write store='redis://cache?{elsewhere}={value}'"
    return f"{problem}; {suggestion(name, known)}"


def called() -> str:
    """Return the class or decorator of Headgate that the user called, as in `limited()`; empty for anything else.

    A class that users know by another name has this name as `_written_as`.
    """
    frame = _outermost()
    name = "" if frame is None else frame.f_code.co_name
    if frame is not None and name == "__init__":
        kind = type(frame.f_locals.get("self"))
        return f"{getattr(kind, '_written_as', kind.__name__)}()"
    return "limited()" if name == "limited" else ""


def is_decorated_at(function: object, frame: FrameType) -> bool:
    """Return whether the code of this frame gives a decorator a function that it defines just now.

    Nothing refers to such a function yet. One that is given as an argument has its name there, or is defined elsewhere.
    """
    name: str = getattr(function, "__qualname__", "")
    start, last = name[: name.rfind(".") + 1], name.rpartition(".")[2]
    within = frame.f_code.co_qualname
    here = ("",) if within == "<module>" else (f"{within}.", f"{within}.<locals>.")  # a class, or a function
    module = getattr(function, "__module__", None)
    if last in ("", "<lambda>") or start not in here or module != frame.f_globals.get("__name__"):
        return False
    known = {id(each) for each in frame.f_locals.values()}
    while function is not None and id(function) not in known:
        known.add(id(function))
        function = getattr(function, "__wrapped__", None)
    return function is None


def _arguments_of_the_called() -> Sequence[str]:
    """Return the names of the arguments that the class has itself which the user called, such as `default`."""
    frame = _outermost()
    if frame is None or frame.f_code.co_name != "__init__":
        return ()
    code = frame.f_code
    taken = code.co_argcount + code.co_kwonlyargcount
    return [name for name in code.co_varnames[1:taken] if name != "app"]


def _outermost() -> FrameType | None:
    """Return the frame of Headgate that the user's code called."""
    found, frame = None, sys._getframe(1)
    while frame is not None and frame.f_globals.get("__name__", "").startswith("headgate."):
        found, frame = frame, frame.f_back  # type: ignore[assignment]
    return found


def missing(what: str, package: str, extra: str = "") -> str:
    """Return a message that says how to install a missing package."""
    needed = f"{what} needs {package.partition('[')[0]}"
    if not extra:
        return f"{needed}: pip install {package}"
    return f"{needed}: pip install '.[{extra}]' in a clone of Headgate, or pip install '{package}'"


@contextmanager
def requiring(what: str, package: str, module: str = "", extra: str = "") -> Iterator[None]:
    """Wrap imports of an optional package: the error says how to install it."""
    try:
        yield
    except ModuleNotFoundError as reason:
        if (reason.name or "").partition(".")[0] != (module or package):  # the package itself misses a module
            raise
        raise ModuleNotFoundError(missing(what, package, extra), name=reason.name) from None


def log_of(name: str) -> Log:
    """Return the log of this name."""
    from headgate.logs import open_log  # here, because it imports logging

    return open_log(name)


class Renamed:
    """A name of earlier versions: its use raises an error that names the new one.

    A `__getattr__` could do the same, but would slow down every access to a limiter.
    """

    def __init__(self, instead: str) -> None:
        self._instead = instead

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, instance: object, owner: type) -> NoReturn:
        raise AttributeError(f"{owner.__name__} has no {self._name}: {self._instead}", name=self._name, obj=instance)
