"""The address of a service: a host and a port, or a unix socket; and whether other machines can reach it."""

from __future__ import annotations

import os
import re
import socket
import stat
from ipaddress import ip_address
from typing import Final, NamedTuple

from headgate.errors import InvalidCall, StoreError
from headgate.wording import shown

UNIX: Final = "unix:"
BACKLOG: Final = 2048
SOCKET_MODE: Final = 0o660
"""A unix socket is for its owner and its group: that of the proxy, if the service runs under it."""
_PLACE: Final = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([^:\[\]/\s]+)):([0-9]{1,5})")


class Place(NamedTuple):
    """A host and a port, or the path of a unix socket."""

    host: str
    port: int
    path: str = ""

    @property
    def is_local(self) -> bool:
        """Whether only this machine can reach it."""
        if self.path or self.host == "localhost":
            return True
        try:
            return ip_address(self.host).is_loopback
        except ValueError:
            return False

    def __str__(self) -> str:
        if self.path:
            return UNIX + self.path
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def read_place(text: str, option: str, unix: bool = True) -> Place:
    """Read `127.0.0.1:8080`, `[::1]:8080` or `unix:/run/headgate.sock`."""
    if unix and text.startswith(UNIX):
        path = text.removeprefix(UNIX)
        if not path.startswith("/"):
            raise InvalidCall(f"{option} needs the whole path of the socket, as in unix:/run/headgate.sock")
        return Place("", 0, path)
    found = _PLACE.fullmatch(text)
    if found is None or int(found[3]) > 65_535:
        example = "127.0.0.1:8080 or unix:/run/headgate.sock" if unix else "127.0.0.1:8081"
        raise InvalidCall(f"{option} is a host and a port; got {shown(text)}: write for instance {example}")
    return Place(found[1] or found[2], int(found[3]))


def listening(place: Place, option: str = "--listen") -> socket.socket:
    """Return a socket that listens there; workers share it, so that no connection waits at one that has ended."""
    try:
        return _listening_unix(place.path) if place.path else _listening_tcp(place)
    except OSError as reason:
        why = reason.strerror or str(reason)
        raise StoreError(f"cannot listen on {place}: {why}. Choose another place with {option}") from None


def _listening_tcp(place: Place) -> socket.socket:
    family, _, _, _, address = socket.getaddrinfo(place.host, place.port, type=socket.SOCK_STREAM)[0]
    made = socket.socket(family, socket.SOCK_STREAM)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind(address)
        made.listen(BACKLOG)
    except BaseException:
        made.close()
        raise
    return made


def _listening_unix(path: str) -> socket.socket:
    _remove_stale(path)
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        made.bind(path)
        os.chmod(path, SOCKET_MODE)
        made.listen(BACKLOG)
    except BaseException:
        made.close()
        raise
    return made


def _remove_stale(path: str) -> None:
    """Remove a socket on which no process listens any more; anything else stays, and the bind fails."""
    try:
        if not stat.S_ISSOCK(os.stat(path).st_mode):
            return
    except FileNotFoundError:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asked:
        try:
            asked.connect(path)
        except ConnectionRefusedError:
            os.unlink(path)
