"""The fields of a line that are read, as the caller names them: `key`, `cost`, `fields` and `wanted` of a `Log`."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

from headgate.errors import InvalidCall
from headgate.lab.logs.stamps import NANOSECONDS
from headgate.wording import listed, shown, suggestion

ROLES: Final = ("time", "key", "cost", "method", "path", "status")
OPTIONAL: Final = frozenset({"method", "path", "status"})
"""Fields that a caller may not need: without method and path, the fastest reader is used."""


@dataclass(frozen=True, slots=True)
class Chosen:
    """The choices of a caller, checked."""

    key: str
    """`ip`, `user` or the name of a field."""
    cost: str
    """The name of a field; empty for 1."""
    fields: Mapping[str, str]
    """Names of fields by their role; empty for a format that is recognised."""
    unit: str
    """The unit of a time that is a number; empty for the one that its size tells."""
    wanted: frozenset[str]

    @property
    def own_key(self) -> bool:
        """Whether the key is a field that the caller named, and not one that the format has a role for."""
        return self.key not in ("ip", "user")


def choose(key: str, cost: str | None, fields: Mapping[str, str] | None, wanted: Collection[str]) -> Chosen:
    """Check the choices, or raise `InvalidCall`."""
    _check_names(key, cost, wanted)
    if fields is None:
        return Chosen(key, cost or "", {}, "", frozenset(wanted))
    for role, name in fields.items():
        if role not in ROLES:
            raise InvalidCall(f"a log has no field for {shown(role)}; {suggestion(str(role), ROLES)}")
        if not isinstance(name, str) or not name:
            raise InvalidCall(f"the field for the {role} must be a name or the number of a column; got {shown(name)}")
    if "time" not in fields:
        raise InvalidCall("fields must name the time: fields={'time': 'ts'}, or --fields time=ts")
    name, colon, unit = fields["time"].rpartition(":")
    if not colon or unit not in NANOSECONDS:
        name, unit = fields["time"], ""
    names = {**fields, "time": name}
    if cost:
        names["cost"] = cost
    if key != "ip":
        names["key"] = key
    return Chosen(names.get("key", ""), names.get("cost", ""), names, unit, frozenset(wanted))


def _check_names(key: str, cost: str | None, wanted: Collection[str]) -> None:
    if not isinstance(key, str) or not key:
        raise InvalidCall(f"key must be 'ip', 'user' or the name of a field; got {shown(key)}")
    if cost is not None and (not isinstance(cost, str) or not cost):
        raise InvalidCall(f"cost must be the name of a field; got {shown(cost)}")
    if unknown := set(wanted) - OPTIONAL:
        raise InvalidCall(f"{shown(unknown.pop())} cannot be wanted; use one of {listed(sorted(OPTIONAL))}")
