"""Views of ASGI's scopes, for rules."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import suppress
from typing import Any, Final

from headgate.policy import Proxies, RequestView
from headgate.web.headers import ASGI
from headgate.web.mounts import below
from headgate.web.runtime import Reader

Scope = MutableMapping[str, Any]


def read_scope(scope: Scope, proxies: Proxies | None) -> RequestView:
    """Return the view of a scope of HTTP or of a websocket."""
    peer = scope.get("client")
    method = scope["method"].upper() if scope["type"] == "http" else "WEBSOCKET"
    view = RequestView(method, path_of(scope), ScopeHeaders(scope["headers"]), peer[0] if peer else None, proxies)
    view.query_string = scope.get("query_string", b"")
    if "user" in scope:
        view.user = _user_in(scope)
    return view


def path_of(scope: Scope) -> str:
    """Return the path as the app routes it: without the prefix of a mount, or one that a proxy has removed."""
    path: str = scope["path"]
    root = scope.get("root_path")
    return below(path, root) if root else path


def lines_of(scope: Scope, header: str) -> list[str]:
    """Return the lines of one header."""
    wanted, length, lines = header.encode("latin-1"), len(header), []
    for name, value in scope["headers"]:
        if len(name) == length and name.lower() == wanted:
            lines.append(value.decode("latin-1"))
    return lines


SCOPES: Final = Reader(ASGI, read_scope, lines_of)


def accepted_in(headers: Iterable[tuple[bytes, bytes]]) -> bytes | None:
    """Return the first `Accept` line, without reading other headers."""
    for name, value in headers:
        if name == b"accept":
            return value
    return None


def _user_in(scope: Scope) -> str | None:
    """Return the user that an authentication middleware in front of this one has put into the scope."""
    user = scope.get("user")
    if user is None or not getattr(user, "is_authenticated", False):
        return None
    for attribute in ("identity", "username", "display_name"):
        with suppress(NotImplementedError):  # Starlette's own user raises for its identity
            name = getattr(user, attribute, None)
            if name:
                return str(name)
    return None


class ScopeHeaders(Mapping[str, list[str]]):
    """Header lines by lower-case name, read at the first lookup."""

    __slots__ = ("_lines", "_raw")

    def __init__(self, raw: Sequence[tuple[bytes, bytes]]) -> None:
        self._raw = raw
        self._lines: dict[str, list[str]] | None = None

    def _read(self) -> dict[str, list[str]]:
        lines: dict[str, list[str]] = {}
        for name, value in self._raw:
            lines.setdefault(name.decode("latin-1").lower(), []).append(value.decode("latin-1"))
        self._lines = lines
        return lines

    def first(self, name: str) -> str | None:
        """Return the first line of a header, or None."""
        lines = (self._read() if self._lines is None else self._lines).get(name)
        return lines[0] if lines else None

    def __contains__(self, name: object) -> bool:
        return name in (self._read() if self._lines is None else self._lines)

    def __getitem__(self, name: str) -> list[str]:
        return (self._read() if self._lines is None else self._lines)[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._read() if self._lines is None else self._lines)

    def __len__(self) -> int:
        return len(self._read() if self._lines is None else self._lines)
