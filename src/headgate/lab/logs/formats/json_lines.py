"""JSON, one object a line: of Caddy, Envoy and Traefik, or with fields that the caller names."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final, Self

from headgate.lab.logs.fields import Chosen
from headgate.lab.logs.formats.contract import LineFormat, UnreadableLine
from headgate.lab.logs.formats.requests import client_of, origin_form
from headgate.lab.logs.formats.values import cost_of, key_of, status_of, text_of
from headgate.lab.logs.request import NOBODY, Row
from headgate.lab.logs.stamps import Memo, Stamps

Record = dict[str, Any]
Getter = Callable[[Record], object]


SERVERS: Final[Mapping[str, Mapping[str, Sequence[str]]]] = {
    "Caddy": {
        "time": ("ts",),
        "ip": ("request.client_ip", "request.remote_ip"),
        "user": ("user_id",),
        "method": ("request.method",),
        "path": ("request.uri",),
        "status": ("status",),
    },
    "Traefik": {
        "time": ("StartUTC",),
        "ip": ("ClientHost",),
        "user": ("ClientUsername",),
        "method": ("RequestMethod",),
        "path": ("RequestPath",),
        "status": ("DownstreamStatus",),
    },
    "Envoy": {
        "time": ("start_time",),
        "ip": ("downstream_remote_address", "x_forwarded_for", "x-forwarded-for"),
        "method": ("method",),
        "path": ("path", "x-envoy-origin-path", "x_envoy_origin_path", "x-envoy-original-path"),
        "status": ("response_code",),
    },
}
"""The places where a server writes each field; the first that a line has counts."""


def parsed(line: str) -> Record:
    """Return the object that a line holds."""
    try:
        record = json.loads(line)
    except RecursionError:
        raise UnreadableLine("its JSON is nested too deeply") from None
    except ValueError:
        raise UnreadableLine("it is no JSON") from None
    if not isinstance(record, dict):
        raise UnreadableLine("it is no JSON object")
    return record


def getter(names: Sequence[str]) -> Getter:
    """Return a function that finds the first of these fields; `a.b` is `b` within `a`, `a.0` the first of a list."""

    def get(record: Record) -> object:
        for name in names:
            value = record.get(name)
            if value is None and "." in name:
                value = _within(record, name.split("."))
            if value is not None:
                return value
        return None

    return get


def _within(value: object, parts: Sequence[str]) -> object:
    for part in parts:
        if isinstance(value, dict):
            value = value.get(part)
        elif isinstance(value, list) and part.isdecimal() and len(part) < 6 and int(part) < len(value):
            value = value[int(part)]
        else:
            return None
    return value


class JsonLines(LineFormat):
    """A reader of JSON lines."""

    def __init__(self, name: str, chosen: Chosen, fields: Mapping[str, Sequence[str]]) -> None:
        self.name, self.fields = name, fields
        self.asked: Collection[str] = fields
        """The roles of fields that the caller named."""
        self.lacks = frozenset({"key", "user", "method", "path", "status"} - fields.keys())
        self._stamps = Stamps(chosen.unit)
        unwanted = {"method", "path"} - chosen.wanted
        self._time, self._key, self._method, self._path, self._status = (
            getter(() if role in unwanted else fields.get(role, ()))
            for role in ("time", "key", "method", "path", "status")
        )
        self._cost = getter(fields["cost"]) if "cost" in fields else None
        self._keys = Memo(str)
        self._all_requests = True

    @classmethod
    def of_server(cls, name: str, chosen: Chosen) -> Self:
        """Return the reader of what a server writes, with the key and the cost that the caller chose."""
        own = {"key": (chosen.key,)} if chosen.own_key else {}
        own |= {"cost": (chosen.cost,)} if chosen.cost else {}
        fields = SERVERS[name]
        made = cls(f"{name}'s JSON", chosen, {**fields, "key": fields.get(chosen.key, ()), **own})
        made.asked, made._all_requests = own, False
        if chosen.key == "ip":
            made._keys = Memo(client_of)
        return made

    @property
    def unit(self) -> str:
        """The unit of its stamps."""
        return self._stamps.known

    def row(self, line: str) -> Row:
        """Read one line."""
        record = parsed(line)
        status = self._status(record)
        if status is None and not self._all_requests:
            raise UnreadableLine("it has no status, as every line about a request has")
        time = self._stamps.read(self._time(record))
        method = text_of(self._method(record))
        return (
            time,
            self._keys[key_of(self._key(record))],
            1 if self._cost is None else cost_of(self._cost(record)),
            "" if method == NOBODY else method,
            origin_form(text_of(self._path(record))),
            status_of(status),
        )
