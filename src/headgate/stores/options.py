"""The options of stores on a server or in a file, from a URL or from arguments: one meaning and one check for each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple
from urllib.parse import parse_qsl, quote, urlencode

from headgate.clock import Clock
from headgate.errors import InvalidCall
from headgate.stores.contract import Store
from headgate.stores.memory import MemoryStore
from headgate.stores.url import split
from headgate.wording import shown

YES: Final = ("1", "true", "yes", "on")
LONGEST_PEPPER: Final = 64
LEAST_SECONDS: Final = {"deadline": 1e-6, "connect_timeout": 1e-6, "remember_refusals": 0}
WHOLE: Final = {"nodes": "processes", "max_connections": "connections"}


class Options(NamedTuple):
    """Seconds, numbers of processes and connections, and whether keys are stored as they are.

    A store has some of these, under these names also in its URL.
    """

    deadline: float = 0.25
    connect_timeout: float = 0.25
    remember_refusals: float = 1.0
    max_connections: int = 10
    nodes: int = 1
    readable_keys: bool = False

    def checked(self) -> Options:
        """Return these options, or raise an error that describes the wrong one."""
        for name, least in LEAST_SECONDS.items():
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= 3600:
                raise InvalidCall(f"{name} is a number of seconds from {least} to 3600; got {value!r}")
        for name, what in WHOLE.items():
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise InvalidCall(f"{name} is a whole number of {what}, from 1; got {value!r}")
        return self

    def with_arguments(self, given: Mapping[str, object]) -> Options:
        """Return these options with the arguments that are not None, checked."""
        return self._replace(**{name: value for name, value in given.items() if value is not None}).checked()  # type: ignore[arg-type]


def read_options(url: str, defaults: Options, allowed: tuple[str, ...], example: str) -> tuple[str, Options]:
    """Return a URL without the options of a store, and these options, not checked yet."""
    parts = split(url)
    if parts.fragment:
        raise InvalidCall("a password in a URL must be escaped: write %23 for #, %2F for / and %40 for @")
    theirs: list[tuple[str, str]] = []
    ours: dict[str, object] = {}
    for name, text in parse_qsl(parts.query, keep_blank_values=True):
        if name not in allowed:
            theirs.append((name, text))
            continue
        try:
            ours[name] = _read(name, text)
        except ValueError:
            raise InvalidCall(f"{name}={shown(text)} is not a number; write {example}?{name}=1") from None
    query = f"?{urlencode(theirs, quote_via=quote)}" if theirs else ""  # libpq does not read + as a space
    # Not by urlunsplit, which drops the slashes of unix:///path.
    plain = f"{parts.scheme}://{parts.netloc}{parts.path}{query}"
    return plain, defaults._replace(**ours)  # type: ignore[arg-type]


def _read(name: str, text: str) -> object:
    if name == "readable_keys":
        return text.lower() in YES
    return int(text) if name in WHOLE else float(text)


def checked_pepper(pepper: bytes) -> bytes:
    """Return the secret of hashed keys, or raise `InvalidCall`."""
    if not isinstance(pepper, bytes) or len(pepper) > LONGEST_PEPPER:
        raise InvalidCall(f"pepper must be bytes, at most {LONGEST_PEPPER}, and the same in the whole fleet")
    return pepper


def local_store(local: Store | str | None, clock: Clock | None) -> Store:
    """Return the store that answers while another one is away."""
    if local is None:
        return MemoryStore(clock=clock)
    from headgate.stores import open_store  # here, since that module imports this one

    return open_store(local, clock if isinstance(local, str) else None)
