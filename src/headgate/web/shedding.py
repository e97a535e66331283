"""Load shedding at the edges: the shedder of an app, made from the section `shed` of its policy.

The shedder is asked before the rules. A request that gets a permit at once costs little: its class is known by method
and path, and no view of it is read. A request that has to wait, or whose class depends on more, takes steps.
"""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from headgate.caches import PathCache
from headgate.engine import Entry
from headgate.errors import InvalidCall
from headgate.forks import after_fork
from headgate.policy import RequestView
from headgate.policy.edges import Candidates, Outcome, ShedSection, Unclear, client_key, fallback_key, key_of
from headgate.shed import LoadShedder, ShedPermit
from headgate.shed.estimators import ESTIMATORS
from headgate.steps import Steps
from headgate.web.waits import PermitWait
from headgate.wording import log_of, shown

if TYPE_CHECKING:
    from headgate.web.request_limits import RequestLimits
    from headgate.web.responder import Shortcut
    from headgate.web.runtime import Runtime

REQUEST_START: Final = "x-request-start"
_MILLISECONDS: Final = re.compile(r"\s*([0-9]{1,12})\s*", re.ASCII)
_START: Final = re.compile(r"\s*(?:t=)?\s*([0-9]{10,16}(?:\.[0-9]{1,9})?)\s*", re.ASCII)
UNAVAILABLE: Final = 503
Request = Any
"""The framework's own request."""

log = log_of("headgate.web")


class Asked(NamedTuple):
    """A request that takes steps: the arguments of `RequestLimits.admit`."""

    limits: RequestLimits[Any]
    request: Request
    method: str
    where: str
    peer: str | None

    def decide(self) -> bool | Steps[bool]:
        """Decide by the rules."""
        return self.limits.admit(self.request, self.method, self.where, self.peer)

    def steps(self) -> Steps[bool]:
        """Decide by the rules, in steps; a refusal gives the permit back."""
        admitted = self.decide()
        if not isinstance(admitted, bool):
            admitted = yield from admitted
        if not admitted:
            self.limits.let_go()
        return admitted


class Shedding:
    """The load shedder in front of an app. A reload makes another of these around the same shedder."""

    def __init__(self, section: ShedSection, shedder: LoadShedder, runtime: Runtime[Any]) -> None:
        self.section = section
        self.shedder = shedder
        self._runtime = runtime
        self._candidates: PathCache[Candidates] = PathCache(section.classes.candidates)
        self._only: PathCache[str | None] = PathCache(lambda method, path: self._candidates[method][path].only)
        self._timeout = section.timeout or None
        trusts = runtime.proxies is not None
        self._class_header = section.class_header if trusts else None
        self._queues = trusts and "queue" in section.signals
        self._reads = bool(self._class_header or section.deadline_header or self._queues or runtime.reader.remaining)
        """Whether header fields of each request have to be read."""
        self.entrances: PathCache[tuple[Entry | None, Shortcut]] = PathCache(self._entrance)
        """By method and path: the entry of requests that a middleware may decide on by itself, and their shortcut."""
        self._logged = False
        after_fork(self._begin_in_child)

    def _begin_in_child(self) -> None:
        """Forget the entries: those of a forked child lead to places of its own."""
        self.entrances.forget()

    def front(self, method: str, path: str) -> Shortcut:
        """Return the shortcut of requests that a middleware may decide on by itself: those that are always exempt."""
        exempt: bool = self._candidates[method][path].exempt == ()
        return exempt and self._runtime.shortcuts[method][path]

    def _entrance(self, method: str, path: str) -> tuple[Entry | None, Shortcut]:
        shortcut = self._runtime.shortcuts[method][path]
        if self._candidates[method][path].exempt == ():
            return None, shortcut
        name = None if self._reads else self._only[method][path]
        entry = None if name is None else self.shedder.entries.get(name)  # none if a reload has changed the order
        return (None, False) if entry is None or shortcut is False else (entry, shortcut)

    def admit(
        self, limits: RequestLimits[Any], request: Request, method: str, where: str, peer: str | None
    ) -> bool | Steps[bool]:
        """Take a permit for a request, then decide by the rules; like `RequestLimits.admit`."""
        limits.shed_asked = True
        name = self._only[method][where]
        if name is None:
            return self._classify(Asked(limits, request, method, where, peer))
        if self._reads:
            return self._ask(Asked(limits, request, method, where, peer), name)
        permit = self._permit(name, None)
        if permit.state == "refused":
            return limits.turn_away(_outcome_of(permit), request)
        if permit.state == "asked":
            return self._wait(Asked(limits, request, method, where, peer), permit)
        limits.hold(permit)
        shortcut = self._runtime.shortcuts[method][where]
        if shortcut is True:  # no rule applies
            return True
        try:
            admitted = limits.admit(request, method, where, peer, None, shortcut)
        except BaseException:
            limits.let_go()
            raise
        if admitted is True:
            return True
        if admitted is False:  # refused by a rule
            limits.let_go()
            return False
        return _guarded(limits, admitted)

    def keeps(self, limits: RequestLimits[Any], where: str) -> bool:
        """Whether a GET that becomes a websocket keeps its permit: it would wait again for another one."""
        name = self._only["WEBSOCKET"][where]
        return limits.permit is not None and name is not None and name == self._only["GET"][where]

    def _classify(self, asked: Asked) -> Steps[bool]:
        """Find the class of a request by its view."""
        candidates = self._candidates[asked.method][asked.where]
        name = None
        if candidates.exempt != ():
            view = yield from self._view(asked)
            name = candidates.class_of(view)
        admitted = asked.decide() if name is None else self._ask(asked, name)
        return admitted if isinstance(admitted, bool) else (yield from admitted)

    def _ask(self, asked: Asked, name: str) -> bool | Steps[bool]:
        """Ask for a permit, for the class and the deadline that the request names."""
        name, deadline = self._read(asked.request, asked.peer, name)
        permit = self._permit(name, deadline)
        return self._serve(asked, permit) if permit.state == "held" else self._without(asked, permit)

    def _permit(self, name: str, deadline: float | None) -> ShedPermit:
        """Take a permit; if a reload has removed the class meanwhile, one of the default class."""
        shedder, timeout = self.shedder, self._timeout
        try:
            return shedder.permit(name, timeout=timeout, deadline=deadline, at_once=True)
        except InvalidCall:
            return shedder.permit(None, timeout=timeout, deadline=deadline, at_once=True)

    def _serve(self, asked: Asked, permit: ShedPermit) -> Steps[bool]:
        """Decide by the rules about a request that has its permit."""
        asked.limits.hold(permit)
        return _guarded(asked.limits, asked.steps())

    def _without(self, asked: Asked, permit: ShedPermit) -> bool | Steps[bool]:
        """Let a request wait that has no permit, or refuse it."""
        if permit.state == "asked":
            return self._wait(asked, permit)
        return asked.limits.turn_away(_outcome_of(permit), asked.request)

    def _wait(self, asked: Asked, permit: ShedPermit) -> Steps[bool]:
        """Wait for a permit, as the request of a tenant."""
        permit.tenant, permit.weight = yield from self._tenant(asked)
        yield PermitWait(permit)
        asked.limits.held = True
        admitted = self._serve(asked, permit) if permit.state == "held" else self._without(asked, permit)
        return admitted if isinstance(admitted, bool) else (yield from admitted)

    def _tenant(self, asked: Asked) -> Steps[tuple[str, float]]:
        section, clients = self.section, self._runtime.clients
        if section.tenant is None and not section.weights:
            client = asked.peer if clients is None else clients(asked.request, asked.peer)
            return client_key(client) if client else "", 1.0
        view = yield from self._view(asked)
        try:
            key = None if section.tenant is None else key_of(section.tenant, view, {})
        except Unclear:
            key = None
        return key or fallback_key(view, client_key), section.weights.get(view.plan or "", 1.0)

    def _view(self, asked: Asked) -> Steps[RequestView]:
        """Return the view of a request with its plan; the rules use the same."""
        runtime, limits = self._runtime, asked.limits
        view = limits.view = limits.read(asked.request, asked.method, asked.where, None)
        responder = runtime.responder(view)
        if runtime.prepare is not None:
            yield from runtime.prepare(view, responder, ())
        if runtime.awaited_options.names:
            yield runtime.awaited_options.step(asked.request, view)
            limits.complete = view
        if view.plan is None:
            with suppress(Unclear):  # the rules refuse the request for it
                view.plan = responder.compiled.policy.plan_of(view)
        return view

    def _read(self, request: Request, peer: str | None, name: str) -> tuple[str, float | None]:
        """Return the class and the deadline that header fields name; class and queue are believed of proxies only."""
        runtime, section = self._runtime, self.section
        lines, deadline = runtime.reader.lines, None
        if runtime.proxies is not None and runtime.proxies.trusts(peer):
            if self._class_header is not None and (named := lines(request, self._class_header)):
                name = self._named(_joined(named))
            if self._queues and (start := lines(request, REQUEST_START)):
                self.shedder.note_queue(_waited(_joined(start)))
        if section.deadline_header is not None and (given := lines(request, section.deadline_header)):
            found = _MILLISECONDS.fullmatch(given[0])
            deadline = int(found[1]) / 1_000 if found else None
        if runtime.reader.remaining is not None and (left := runtime.reader.remaining(request)) is not None:
            deadline = max(0.0, left)
        return name, deadline

    def _named(self, name: str) -> str:
        """Return the class of a header; the default class if there is none of that name."""
        if name in self.section.classes.order:
            return name
        if not self._logged:
            self._logged = True
            default = self.section.classes.default
            log.warning("the header %s names an unknown class %s: %s", self._class_header, shown(name), default)
        return self.section.classes.default

    def mark(self, view: RequestView, permit: ShedPermit) -> None:
        """Set the class on a view, for the fleet's limit, unless the shedder is off."""
        if self.section.fleet and self.shedder.mode != "off":
            view.request_class = permit.request_class
            view.would_refuse = [] if self.shedder.mode == "observe" else None


def _outcome_of(permit: ShedPermit) -> Outcome:
    """Return the outcome for a request that got no permit."""
    return Outcome("deny", UNAVAILABLE, overload=permit.reason or "limit", retry_after=permit.retry_after)


def follow(before: Shedding | None, section: ShedSection | None, runtime: Runtime[Any]) -> Shedding | None:
    """Return the shedding of a new policy, with the shedder of the old one: its counts and requests in flight stay.

    What it has learned stays while the limit is the same. A mode that was set by hand stays until the file names
    another one.
    """
    if section is None:
        if before is not None:
            before.shedder.mode = "off"  # requests that wait go on
        return None
    order = section.classes.order
    if before is None:
        shedder = LoadShedder(_limit_of(section), classes=order, workers=section.signals, mode=section.mode)
        return Shedding(section, shedder, runtime)
    was, shedder = before.section, before.shedder
    same_limit, same_order = section.estimator == was.estimator, order == was.classes.order
    if not (same_limit and same_order and section.signals == was.signals):
        shedder.change(
            limit=None if same_limit else _limit_of(section),
            classes=None if same_order else order,
            workers=None if same_order and section.signals == was.signals else section.signals,
        )
    if section.mode != was.mode:
        shedder.mode = section.mode
    return Shedding(section, shedder, runtime)


def _limit_of(section: ShedSection) -> Any:  # noqa: ANN401 - a number, a name or an estimator
    limit, bounds = section.estimator
    if bounds is None or not isinstance(limit, str):
        return limit
    return ESTIMATORS[limit](*bounds)  # type: ignore[call-arg]  # each takes initial, least and most


def _guarded(limits: RequestLimits[Any], steps: Steps[bool]) -> Steps[bool]:
    """Run the steps of the rules; a request that is cancelled in them leaves no permit behind."""
    try:
        return (yield from steps)
    except BaseException:
        limits.let_go()
        raise


def _joined(lines: Sequence[str]) -> str:
    """Return the value of a header; the lines of a client whose proxy adds one of its own become a value of neither."""
    return ", ".join(dict.fromkeys(lines))


def _waited(start: str) -> float:
    """Return the seconds since an instant in seconds, milliseconds or microseconds; 0 if it cannot be read."""
    found = _START.fullmatch(start)
    if found is None:
        return 0.0
    whole = len(found[1].partition(".")[0])
    return max(0.0, time.time() - float(found[1]) / (1 if whole < 13 else 1e3 if whole < 16 else 1e6))
