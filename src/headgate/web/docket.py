"""A docket: everything that was decided about one request, by the policy in front of the app and at its endpoint.

A no from one of them gives back what the others charged. The response tells what is left of all of them, and says
whether what was charged was right.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, AnyStr, Final, Generic, NamedTuple

from headgate.engine import Decision
from headgate.errors import StoreError
from headgate.policy.ruling import PASS, Charge, Group, Ruling, refused
from headgate.policy.steps import Steps
from headgate.policy.view import RequestView
from headgate.web.court import Court, Pairs
from headgate.web.door import Door
from headgate.web.route import RouteLimit

FAILED: Final = 500
"""The status of a request that has no response."""
LISTS: Final = frozenset(("ratelimit", "ratelimit-policy"))
"""Fields in which several decisions are told side by side; of the others, those of the nearest limit are."""


class Entry(NamedTuple, Generic[AnyStr]):
    """One decision that let the request pass."""

    court: Court[AnyStr]
    group: Group | None
    decision: Decision | None
    charges: tuple[Charge, ...]
    """What the response may still change."""


class Denial(NamedTuple, Generic[AnyStr]):
    """A refusal at an endpoint, of which an app may make an answer of its own."""

    court: Court[AnyStr]
    fields: Pairs[AnyStr]

    def completed(self, headers: Iterable[tuple[AnyStr, AnyStr]]) -> Pairs[AnyStr]:
        """What the app answers, with the fields that it has left out."""
        given = list(headers)
        there = {name.lower() for name, _ in given}
        return self.court.with_fields(given, [pair for pair in self.fields if pair[0].lower() not in there])


class Docket(Generic[AnyStr]):
    """One request. Steps are run by the edge: at once, or awaited."""

    __slots__ = ("_counted", "_entries", "denial", "door", "follows", "messages", "request", "route")

    def __init__(self, door: Door[AnyStr], first: Entry[AnyStr] | None = None) -> None:
        self.door: Door[AnyStr] = door
        self.messages: tuple[RouteLimit, ...] = ()
        """Limits of the messages of a websocket, from its endpoint; and which that is, for their keys."""
        self.route: str | None = None
        self.request: Any = None
        self._entries: list[Entry[AnyStr]] = [] if first is None else [first]
        self.follows = first is not None and bool(first.charges)
        """Whether the response has a say in what was charged."""
        self._counted = False
        self.denial: Denial[AnyStr] | None = None
        """The refusal, once there is one at an endpoint; set by an edge that leaves the answer to the app."""

    def at_once(
        self, limits: tuple[RouteLimit, ...], route: str, method: str, address: str | None
    ) -> tuple[Court[AnyStr], Ruling] | None:
        """As `enter`, without a look at the request; None where it needs one, and nothing was charged.

        `address` is the client's, where no proxy has to be asked about it.
        """
        found = self.door.lane_at(limits, route, method)
        if found is None or not address or self.door.proxies is not None:
            return None
        court, lane, _ = found
        keys = lane.key_by(address) if lane is not None and lane.by_address else None
        if lane is None or keys is None:
            return None
        try:
            decision = lane.ask(keys, lane.costs)
        except StoreError:
            return None
        if decision.allowed:
            self._entries.append(Entry(court, lane.group, decision, ()))
            return court, PASS
        if any(each.decision is not None for each in self._entries):
            return None  # there is something to give back, which may have to be awaited
        return court, refused(lane.group, decision)

    def enter(self, view: RequestView, limits: tuple[RouteLimit, ...]) -> Steps[tuple[Court[AnyStr], Ruling]]:
        """Rule on a request that has come to an endpoint with limits of its own."""
        court = self.door.court_at(view, limits)
        ruling = yield from court.judge.before(view)
        if ruling.kind == "pass":
            self._entries.append(Entry(court, ruling.group, ruling.decision, ruling.charges))
            self.follows = self.follows or bool(ruling.charges)
        else:
            yield from self.release()
        return court, ruling

    @property
    def court(self) -> Court[AnyStr]:
        """Who adds header fields: the first that had a say."""
        return self._entries[0].court

    @property
    def fields(self) -> Pairs[AnyStr]:
        """The header fields that say how much is left."""
        told = [each for each in self._entries if each.group is not None]
        if len(told) <= 1:
            return told[0].court.fields(told[0].group, told[0].decision) if told else []
        nearest = min(told, key=_share)
        fields: dict[AnyStr, AnyStr] = {}
        for each in told:
            wire = each.court.wire
            for name, value in each.court.fields(each.group, each.decision):
                if wire.text(name).lower() not in LISTS:
                    if each is nearest:
                        fields[name] = value
                elif name in fields:
                    fields[name] = wire.value(f"{wire.text(fields[name])}, {wire.text(value)}")
                else:
                    fields[name] = value
        return list(fields.items())

    def after(self, status: int, header: Callable[[str], str | None]) -> Steps[None]:
        """Count what the response says, once; later calls change nothing."""
        if not self._counted:
            self._counted, self.follows = True, False
            for each in self._entries:
                if each.charges:
                    yield from each.court.judge.after(each.charges, status, header)

    def no_response(self) -> Steps[None]:
        """The app raised, or went away, before it answered."""
        return self.after(FAILED, lambda name: None)

    def release(self) -> Steps[None]:
        """Give everything back: the request goes no further."""
        entries, self._entries, self.follows = self._entries, [], False
        for court, group, decision, charges in entries:
            every = [charge for charge in charges if charge.decision is not decision]
            if group is not None and decision is not None:
                every.append(Charge(group, decision))
            yield from court.judge.release(every)


def begin_at_once(
    door: Door[AnyStr], method: str, path: str, address: str | None
) -> tuple[Docket[AnyStr], Court[AnyStr], Ruling] | None:
    """What the policy in front of the app says, without a look at the request; None where it needs one.

    `address` is the client's, where no proxy has to be asked about it.
    """
    found = door.lanes.get((method, path))
    if found is None:
        return None
    court, lane, _ = found
    if lane is None:
        return Docket(door, Entry(court, None, None, ())), court, PASS
    keys = lane.key_by(address) if address and lane.by_address and door.proxies is None else None
    if keys is None:
        return None
    try:
        decision = lane.ask(keys, lane.costs)
    except StoreError:
        return None
    if decision.allowed:
        return Docket(door, Entry(court, lane.group, decision, ())), court, PASS
    return Docket(door), court, refused(lane.group, decision)


def _share(entry: Entry[AnyStr]) -> float:
    """The part of its burst that is left of the limit that binds."""
    decision = entry.decision
    return decision.remaining / decision.limit if decision is not None else 1.0
