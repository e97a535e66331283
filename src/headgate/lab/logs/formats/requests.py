"""Request lines, addresses and escapes, as servers write them."""

from __future__ import annotations

import re
from typing import Final

from headgate.lab.logs.request import NOBODY

_LINE: Final = re.compile(r"([A-Za-z][A-Za-z0-9_-]{0,30}) (\S.*?)(?: HTTP/[0-9.]+)?", re.DOTALL)
_ABSOLUTE: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^/?]*")
_ESCAPES: Final = re.compile(r"((?:\\x[0-9A-Fa-f]{2})+)|\\(.)")
_PORT: Final = re.compile(r"([0-9.]+|\[[^\]]*\]):[0-9]+")
_LETTERS: Final = {'"': '"', "\\": "\\", "n": "\n", "r": "\r", "t": "\t", "b": "\b", "f": "\f", "v": "\v"}


def unescaped(text: str) -> str:
    """Return the text that a server escaped: nginx writes a quote as `\\x22`, Apache as `\\"`."""
    return _ESCAPES.sub(_meant, text) if "\\" in text else text


def _meant(escape: re.Match[str]) -> str:
    if escape[1]:
        return bytes.fromhex(escape[1].replace("\\x", "")).decode("utf-8", "backslashreplace")
    return _LETTERS.get(escape[2], escape[0])


def method_and_path(line: str) -> tuple[str, str]:
    """Return the method and the target of a request line; both are empty for what is no request line."""
    found = _LINE.fullmatch(unescaped(line))
    return (found[1], origin_form(found[2])) if found else ("", "")


def origin_form(target: str) -> str:
    """Return a target without scheme and host, which clients of proxies send."""
    if target.startswith("/"):
        return target
    found = _ABSOLUTE.match(target)
    if not found:
        return target
    rest = target[found.end() :]
    return rest if rest.startswith("/") else f"/{rest}"


def client_of(addresses: str) -> str:
    """Return the client among addresses: the last one, which the server itself added, without its port."""
    last = addresses.rpartition(",")[2].strip()
    if found := _PORT.fullmatch(last):
        last = found[1]
    return last.removeprefix("[").removesuffix("]") or NOBODY
