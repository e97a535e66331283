"""Everything that was decided about one request, by the policy in front of the app and at its endpoint.

A no from one of them gives back what the others charged. The response tells what is left of all of them, and says
whether what was charged was right.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any, AnyStr, Final, Generic, NamedTuple

from headgate.decision import tightest
from headgate.engine import Decision
from headgate.policy.outcome import PASS, Charge, LimitGroup, Outcome, refused
from headgate.policy.steps import Steps
from headgate.policy.view import RequestView
from headgate.web.endpoint import EndpointLimit
from headgate.web.responder import Found, Pairs, Responder, decide
from headgate.web.runtime import Runtime

FAILED: Final = 500
"""The status of a request that has no response."""
OF_A_BODY: Final = ("content-type", "content-length")
"""Fields of a refusal's body, which another answer does not have."""
LISTS: Final = frozenset(("ratelimit", "ratelimit-policy"))
"""Fields in which several decisions are told side by side; of the others, those of the nearest limit are."""


class Entry(NamedTuple, Generic[AnyStr]):
    """One decision that let the request pass."""

    responder: Responder[AnyStr]
    group: LimitGroup | None
    decision: Decision | None
    charges: tuple[Charge, ...]
    """What the response may still change."""


Ruled = tuple[Responder[AnyStr], Outcome]


class Denial(NamedTuple, Generic[AnyStr]):
    """A refusal at an endpoint, of which an app may make an answer of its own."""

    responder: Responder[AnyStr]
    fields: Pairs[AnyStr]

    def completed(self, headers: Iterable[tuple[AnyStr, AnyStr]]) -> Pairs[AnyStr]:
        """What the app answers, with the fields that it has left out."""
        given = list(headers)
        there = {name.lower() for name, _ in given}
        return self.responder.with_fields(given, [pair for pair in self.fields if pair[0].lower() not in there])


class RequestLimits(Generic[AnyStr]):
    """One request. Steps are run by the edge: at once, or awaited."""

    # What most requests leave as it is stands here: every request has a `RequestLimits`.
    messages: tuple[EndpointLimit, ...] = ()
    """Limits of the messages of a websocket, from its endpoint; and which that is, for their keys."""
    route: str | None = None
    request: Any = None
    path: str = "/"
    """As the app behind the policy routes it: at an endpoint below a mount, a scope has another one."""
    follows: bool = False
    """Whether the response, or its end, has a say in what was charged."""
    holds_permits: bool = False
    """Whether something is in flight until the end."""
    denial: Denial[AnyStr] | None = None
    """The refusal, once there is one at an endpoint; set by an edge that leaves the answer to the app."""
    _counted = False
    _passed: tuple[Found[AnyStr], Decision] | None = None
    """The only decision so far, where a fast path has taken it; else there are entries."""
    _entries: tuple[Entry[AnyStr], ...] = ()

    _left: Mapping[LimitGroup, Decision] = MappingProxyType({})
    """What is left where the response has changed what was charged."""

    def __init__(self, runtime: Runtime[AnyStr], first: Entry[AnyStr] | None = None) -> None:
        self.runtime: Runtime[AnyStr] = runtime
        if first is not None:
            self._add(first)

    def _add(self, entry: Entry[AnyStr]) -> None:
        entries = list(self._every())
        entries.append(entry)
        self._entries, self._passed = tuple(entries), None
        self.follows = self.follows or bool(entry.charges)
        self.holds_permits = self.holds_permits or any(charge.group.holds_permits for charge in entry.charges)

    def _every(self) -> tuple[Entry[AnyStr], ...]:
        if self._passed is None:
            return self._entries
        (responder, fast_path, _), decision = self._passed
        return (Entry(responder, fast_path.group if fast_path is not None else None, decision, ()),)

    def ask(self, found: Found[AnyStr] | None, address: str | None) -> Ruled[AnyStr] | None:
        """As `begin` or `enter`, in a fast_path: without a look at the request.

        None where it needs one, and nothing was charged. `address` is the client's, where no proxy has to be asked
        about it. After a no the edge has to `release`.
        """
        if found is None:
            return None
        responder, fast_path, _ = found
        if fast_path is None:  # no rule is for such requests
            return responder, PASS
        if not address or not fast_path.by_address or self.runtime.proxies is not None:
            return None
        decision = decide(fast_path, fast_path.key_by(address))
        if decision is None:
            return None
        if not decision.allowed:
            return responder, refused(fast_path.group, decision)
        if self._passed is None and not self._entries:
            self._passed = found, decision
        else:
            self._add(Entry(responder, fast_path.group, decision, ()))
        return responder, PASS

    def begin(self, view: RequestView) -> Steps[Ruled[AnyStr]]:
        """Rule by the policy in front of the app."""
        return self._compiled(self.runtime.responder(view), view)

    def enter(self, view: RequestView, limits: tuple[EndpointLimit, ...]) -> Steps[Ruled[AnyStr]]:
        """Rule on a request that has come to an endpoint with limits of its own."""
        return self._compiled(self.runtime.responder_at(view, limits), view)

    def _compiled(self, responder: Responder[AnyStr], view: RequestView) -> Steps[Ruled[AnyStr]]:
        outcome = yield from responder.compiled.before(view)
        if outcome.kind == "pass":
            self._add(Entry(responder, outcome.group, outcome.decision, outcome.charges))
        else:
            yield from self.release()
        return responder, outcome

    def refuse_for(self, decision: Decision, accept: str | bytes | None) -> tuple[int, Pairs[AnyStr], bytes]:
        """Status, headers and body of the no of a limiter of the app's own, in a view. What was charged stays."""
        responder = self.runtime.responder_now
        answer = responder.refuse_for(decision, accept)
        told = [pair for pair in answer[1] if responder.codec.text(pair[0]).lower() not in OF_A_BODY]
        self.denial = Denial(responder, told)
        return answer

    @property
    def responder(self) -> Responder[AnyStr]:
        """Who adds header fields: the first that had a say."""
        return self._every()[0].responder

    @property
    def fields(self) -> Pairs[AnyStr]:
        """The header fields that say how much is left; a refusal says that itself."""
        if self.denial is not None:
            return []
        if self._passed is not None:
            (_, _, write_fields), decision = self._passed
            return write_fields(decision)
        told = [each for each in map(self._now, self._entries) if each.group is not None]
        if len(told) <= 1:
            return told[0].responder.fields(told[0].group, told[0].decision) if told else []
        nearest = told[_nearest([each.decision for each in told if each.decision is not None])]
        fields: dict[AnyStr, AnyStr] = {}
        for each in told:
            codec = each.responder.codec
            for name, value in each.responder.fields(each.group, each.decision):
                if codec.text(name).lower() not in LISTS:
                    if each is nearest:
                        fields[name] = value
                elif name in fields:
                    fields[name] = codec.value(f"{codec.text(fields[name])}, {codec.text(value)}")
                else:
                    fields[name] = value
        return list(fields.items())

    def _now(self, entry: Entry[AnyStr]) -> Entry[AnyStr]:
        if entry.group is None or entry.group not in self._left:
            return entry
        return entry._replace(decision=self._left[entry.group])

    def after(self, status: int, header: Callable[[str], str | None]) -> Steps[None]:
        """Count what the response says, once; later calls change nothing."""
        if not self._counted:
            self._counted, self.follows = True, self.holds_permits
            for each in self._entries:
                if each.charges:
                    left = yield from each.responder.compiled.after(each.charges, status, header)
                    self._left = {**self._left, **left}

    def end(self, status: int = FAILED, header: Callable[[str], str | None] = lambda name: None) -> Steps[None]:
        """The request is over. If it was not counted before, it is as this; an app that did not answer has failed."""
        yield from self.after(status, header)
        yield from self.land()

    def land(self) -> Steps[None]:
        """Give back what is in flight."""
        if self.holds_permits:
            self.holds_permits = self.follows = False
            for each in self._entries:
                yield from each.responder.compiled.end(each.charges)

    def release(self) -> Steps[None]:
        """Give everything back: the request goes no further."""
        entries, self._entries, self._passed = self._every(), (), None
        self.follows = self.holds_permits = False
        for responder, group, decision, charges in entries:
            every = [charge for charge in charges if charge.decision is not decision]
            if group is not None and decision is not None:
                every.append(Charge(group, decision))
            yield from responder.compiled.release(every)


def _nearest(decisions: list[Decision]) -> int:
    """Which of them has the limit that binds."""
    return tightest([each.granted for each in decisions], [each.remaining for each in decisions])
