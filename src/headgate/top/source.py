"""The sources of `headgate top`: a page of an app or a service, a directory of counts, a shared store."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from ipaddress import ip_address
from typing import Any, Final
from urllib.error import HTTPError, URLError
from urllib.parse import unquote, urlsplit, urlunsplit
from urllib.request import HTTPRedirectHandler, OpenerDirector, ProxyHandler, Request, build_opener

from headgate.errors import InvalidCall, StoreError
from headgate.observe.publish import FIRST_KEYS, read
from headgate.stores.command import holders, survey
from headgate.wording import shown

Snapshot = dict[str, Any]
Source = Callable[[], Snapshot]
"""Reads a snapshot; raises `StoreError` if there is no answer."""
PATIENCE: Final = 2.0
"""Seconds to wait for an answer."""
LARGEST: Final = 16 * 2**20
"""The most bytes that are read of an answer."""
PAGE: Final = "/top"
"""The path that is asked if a URL has none."""
VERSION: Final = 1
"""The version of the snapshots that this screen understands."""


def open_source(text: str, token: str | None = None) -> Source:
    """Return the source that a URL names."""
    try:
        parts = urlsplit(text)
    except ValueError:
        raise InvalidCall(f"cannot read {shown(text)}; {_FORMS}") from None
    if parts.scheme in ("http", "https") and parts.netloc:
        url = urlunsplit(parts._replace(path=parts.path if parts.path.strip("/") else PAGE))
        opener = _opener(parts.hostname or "")
        return lambda: _fetched(opener, url, token)
    if parts.scheme == "shared" and not parts.netloc and len(parts.path) > 1:
        path = os.path.abspath(unquote(parts.path))
        return lambda: _surveyed(path)
    if os.path.isdir(text):
        return lambda: _published(text)
    raise InvalidCall(f"cannot read {shown(text)}; {_FORMS}")


def _published(path: str) -> Snapshot:
    """Return the sum of what workers have written to a directory."""
    try:
        return dict(read(path, FIRST_KEYS))
    except OSError as error:
        raise StoreError(f"cannot read {path!r}: {error.strerror}") from None


_FORMS: Final = "write http://127.0.0.1:6070, a directory given as publish, or shared:///dev/shm/api"


class _Straight(HTTPRedirectHandler):
    """Follows no redirect: pages send none, and the token is for no other server."""

    def redirect_request(self, *_: object) -> None:
        """Let the status be an error."""


def _opener(host: str) -> OpenerDirector:
    """Return a client that asks this machine itself, where a proxy of the environment would see the token."""
    try:
        here = host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        here = False
    return build_opener(_Straight, *([ProxyHandler({})] if here else []))


def _fetched(opener: OpenerDirector, url: str, token: str | None) -> Snapshot:
    asked = Request(url, headers={"Accept": "application/json"})  # noqa: S310 - the scheme was checked
    if token is not None:
        asked.add_header("Authorization", f"Bearer {token}")
    try:
        with opener.open(asked, timeout=PATIENCE) as answer:
            raw = answer.read(LARGEST)
    except HTTPError as error:
        error.close()  # it is the answer, with its connection
        needs = "; give its token with --token or in HEADGATE_TOKEN" if error.code in (401, 403) else ""
        raise StoreError(f"{url} answers {error.code}{needs}") from None
    except (URLError, OSError, ValueError) as error:
        raise StoreError(f"{url} does not answer: {getattr(error, 'reason', error)}") from None
    return checked(raw, url)


def checked(raw: bytes, name: str) -> Snapshot:
    """Return the snapshot in these bytes, or raise `StoreError`."""
    try:
        snapshot = json.loads(raw)
    except ValueError:
        snapshot = None
    if not isinstance(snapshot, dict) or not isinstance(snapshot.get("at"), int | float):
        raise StoreError(f"{name} is not a page of headgate's counts")
    if snapshot.get("version") != VERSION:
        raise StoreError(f"{name} has version {shown(snapshot.get('version'))}; this headgate reads {VERSION}")
    return snapshot


def _surveyed(path: str) -> Snapshot:
    """Return the tables of a shared store, and the permits in flight."""
    seen, held = survey(path), holders(path)
    return {
        "version": VERSION,
        "at": time.time(),
        "shared": path,
        "participants": seen.participants,
        "tables": [table._asdict() for table in seen.tables],
        "in_flight": [
            {"namespace": each.namespace, "limit": each.limit, "age": each.age, "units": each.units, "key": each.key,
             "alive": each.alive}
            for each in held
        ],
    }  # fmt: skip
