"""The runtime that every edge shares: its stores, its current policy, its proxies and the limits of endpoints.

An edge turns its framework's request into a `RequestView`, and a refusal into its framework's response. Everything else
is written once: here, in `request_limits.py` and in `responder.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, AnyStr, Generic, NamedTuple

from headgate.caches import PathCache
from headgate.clock import Clock, SystemClock
from headgate.observe import KeyWatch, tell_of_end
from headgate.policy import Policy, Proxies, RequestView
from headgate.policy.edges import CarriedCounts, PolicyCounts, PolicyFile, Reload, Unclear, compare, with_carried
from headgate.shed import LoadShedder
from headgate.steps import Steps
from headgate.stores import Store, open_store
from headgate.waiting.timers import Timers
from headgate.web.awaited_options import AwaitedOptions
from headgate.web.clients import Lines, clients_of
from headgate.web.endpoint import EndpointLimit, rules_at
from headgate.web.endpoint_shortcuts import EndpointShortcuts
from headgate.web.headers import HeaderCodec
from headgate.web.misconfiguration import Misconfiguration, warn_of_workers
from headgate.web.options import NO_RULES, PolicyGiven, WebOptions
from headgate.web.refusal import Refusal
from headgate.web.responder import Responder, Shortcut
from headgate.web.shedding import Shedding, follow
from headgate.web.unmatched_rules import Route, tell_of_unreached
from headgate.web.waits import Pause
from headgate.wording import log_of

log = log_of("headgate.web")


class Reader(NamedTuple, Generic[AnyStr]):
    """The functions with which an edge reads its framework's requests and encodes header fields."""

    codec: HeaderCodec[AnyStr]
    view: Callable[[Any, Proxies | None], RequestView]
    lines: Lines
    remaining: Callable[[Any], float | None] | None = None
    """Returns the seconds that the caller still waits, where a protocol has deadlines."""
    variable_of: Callable[[str], str] | None = None
    """Returns the name of a header in requests that are environs."""


class Ready(NamedTuple, Generic[AnyStr]):
    """A policy whose stores are open and whose limits are bound: requests can be decided by it at once."""

    store: Store
    policy: Policy
    """The policy as it was read, without limits carried over from earlier policies."""
    reload: Reload
    responder: Responder[AnyStr]


class Runtime(Generic[AnyStr]):
    """A policy in front of an app."""

    endpoints: Callable[[], Iterable[tuple[str, tuple[EndpointLimit, ...]]]] | None = None
    """Returns the route and the limits of each endpoint, where the edge knows them before a request."""

    def __init__(
        self, policy: PolicyGiven | None, reader: Reader[AnyStr], options: WebOptions, *, awaited: bool
    ) -> None:
        self.policy_file: PolicyFile[Ready[AnyStr]] = PolicyFile(NO_RULES if policy is None else policy, self._prepare)
        self.reader: Reader[AnyStr] = reader
        self.awaited = awaited
        """Whether event loops run the steps of this edge."""
        self._options = options
        self.awaited_options = AwaitedOptions(options, awaited)
        self._refusal = options.refusal or Refusal()
        self.store = open_store(options.store, None)
        self._home = self.store
        self._opened: dict[str, Store] = {}  # by URL
        self._owned = [self.store] if self.store is not options.store else []
        self.proxies = options.proxies
        self.clients = clients_of(options.client, self.proxies, reader.lines, reader.variable_of)
        """Finds the client's address: by the app's function, or behind proxies; None if the peer is the client."""
        self.clock: Clock = SystemClock()
        self.timers = Timers(self.clock)
        self.check: Callable[[], None] | None = None
        """A check of the app before the first request; it raises while the app is set up wrong."""
        self.routes: Callable[[], Iterable[Route] | None] | None = None
        """Returns the app's routes, where the edge knows them; a rule that matches none of them is logged."""
        self.prepare: Callable[[RequestView, Responder[AnyStr], tuple[EndpointLimit, ...]], Steps[None]] | None = None
        """Steps with which an edge completes a request's view before rules read it."""
        self._compared = False
        self._plain = self.policy_file.policy
        """The current policy, as it was read."""
        self._carried: tuple[CarriedCounts, ...] = ()
        """Limits of earlier policies that still apply for a while."""
        self._misconfiguration: Misconfiguration | None = Misconfiguration(self.clients is not None)
        self.looks = True
        """Whether the edge must call `look` before it admits a request."""
        self._shedding: Shedding | None = None
        self.watch = KeyWatch(options.hash_addresses)
        self.counts = PolicyCounts(self.watch)
        """The results of every rule, which outlive a reload; and the keys refused most and busiest."""
        self._exchange(self._prepare(self._plain))
        warn_of_workers([self.store, *self._opened.values()])

    @property
    def enabled(self) -> bool:
        """Whether the limits of the app apply."""
        return self._options.enabled

    @property
    def namespace(self) -> str:
        """The namespace of every count made here."""
        return self.policy.namespace

    @property
    def policy(self) -> Policy:
        """The current policy."""
        return self.responder_now.compiled.policy

    def stores(self) -> dict[str, Store]:
        """Return the stores of the current policy by name; "" is the store of rules that name none."""
        opened = self._opened if self.store is self._home else {}
        return {"": self.store, **{name: opened[url] for name, url in self.policy.stores.items() if url in opened}}

    @property
    def shedder(self) -> LoadShedder | None:
        """The load shedder of the current policy."""
        return None if self._shedding is None else self._shedding.shedder

    def _use(self, store: Store) -> None:
        """Count in this store from now on, whatever the rules say; `headgate.testing` does so for a while."""
        self.store = store
        self._exchange(self._prepare(self._plain))

    def _prepare(self, policy: Policy) -> Ready[AnyStr]:
        """Do everything that takes time or can fail before a policy is used; in a thread after a file has changed."""
        store, policy = self.store, self.select(policy if self._options.enabled else policy.switched_off())
        reload = compare(self._plain, policy, self._carried, store.clock.now_us())
        responder = self._open(with_carried(policy, reload.carried))
        responder.compiled.bind()
        return Ready(store, policy, reload, responder)

    def select(self, policy: Policy) -> Policy:
        """Return the part of a policy that this edge can apply: all of it, unless the edge is a service of our own."""
        return policy

    def _exchange(self, ready: Ready[AnyStr]) -> None:
        """Decide by this policy from now on; requests under way keep the policy that they started with."""
        if ready.store is not self.store:  # the store was replaced while the policy was prepared
            self.policy_file.read_again()
            return
        self._plain = ready.policy
        self._carried = ready.reload.taken_up(ready.store.clock.now_us())
        for level, line in ready.reload.lines:
            log.log(level, line)
        self.responder_now: Responder[AnyStr] = ready.responder
        """The responder of the current policy."""
        self.awaits = ready.responder.compiled.awaits
        """Whether some of the stores have to be awaited."""
        self.fast_paths_at: EndpointShortcuts[AnyStr] = EndpointShortcuts(
            partial(self._open_at, ready.responder.compiled.policy),
            self._options.plan is None and not self.awaited_options.names,
        )
        """Shortcuts by the limits of an endpoint, its route and a known method."""
        self.shortcuts: PathCache[Shortcut] = PathCache(self.awaited_options.shortcuts(ready.responder))
        """Shortcuts by method and path."""
        self._shedding = follow(self._shedding, ready.policy.shed, self)
        self.shedding = None if getattr(self.store, "admits_all", False) else self._shedding
        """The load shedder in front of the rules; None if the policy has none."""
        self.entrances = None if self.shedding is None else self.shedding.entrances
        """The entries of requests that a middleware in a loop may decide on by itself; None without a shedder."""
        self.fast_paths = self.shortcuts if self.shedding is None else PathCache(self.shedding.front)
        """The shortcuts of requests that a middleware may decide on by itself; set last, for threads."""
        self.front: PathCache[Shortcut] | None = None if self.looks or self.shedding else self.shortcuts
        """The same, while the edge has nothing to do before it takes one: no look, and no load shedder."""

    def _open(self, policy: Policy) -> Responder[AnyStr]:
        stores = {"": self.store}
        for name, url in policy.stores.items():
            if url not in self._opened:
                self._keep(url, open_store(url, None))
            stores[name] = self._opened[url] if self.store is self._home else self.store
        return Responder(policy, stores, self.reader.codec, self._refusal, self.awaited, self.counts, self.clients)

    def _open_at(self, policy: Policy, limits: tuple[EndpointLimit, ...], route: str) -> Responder[AnyStr]:
        return self._open(policy.with_rules(rules_at(route, limits)))

    def _keep(self, url: str, store: Store) -> None:
        """Keep one store for each URL, even if two threads have opened it at the same time."""
        if self._opened.setdefault(url, store) is not store and hasattr(store, "close"):
            store.close()

    def view(self, request: Any) -> RequestView:  # noqa: ANN401
        """Return the view of a request, for rules."""
        options = self._options
        view = self.reader.view(request, self.proxies)
        if options.client is not None:
            view.client = options.client(request)
        if options.user is not None and "user" not in self.awaited_options.names:
            view.user = options.user(request)
        if options.claims is not None and "claims" not in self.awaited_options.names:
            view.claims = options.claims(request)
        tokens = self.responder_now.compiled.policy.tokens
        if tokens is not None:
            view.claims_of = tokens.claims
        return view

    def look(self, request: Any) -> RequestView | None:  # noqa: ANN401
        """Check whether the policy's file has changed, and log probable misconfiguration; called while `looks`.

        Return the view of the request if it had to be read, else None.
        """
        if self.check is not None:
            self.check()
            self.check = None
        can_change = self.policy_file.can_change
        if can_change or self._carried:
            self.follow()
        view = None
        if self._misconfiguration is not None:
            view = self.view(request)
            if not self._misconfiguration.look(view):
                self._misconfiguration = None
        if not self._compared:
            self._compare()
        self.looks = self._misconfiguration is not None or can_change
        self.front = None if self.looks or self.shedding else self.shortcuts
        return view

    def follow(self) -> None:
        """Check whether the policy's file has changed, at most once a second, and take up what has been read."""
        ready = self.policy_file.next()
        if ready is not None:
            self._take_up(ready)
        elif self._carried and min(each.until_us for each in self._carried) <= self.store.clock.now_us():
            self._exchange(self._prepare(self._plain))

    def _compare(self) -> None:
        """Log rules that match no route, once for each policy; at a request, as apps add routes until then."""
        self._compared = True
        try:
            routes = None if self.routes is None else self.routes()
            if routes is not None:
                tell_of_unreached(self.policy, routes)
        except Exception:  # an app whose routes cannot be read is served all the same
            log.info("could not compare the routes of the app with the rules", exc_info=True)

    def responder(self, view: RequestView) -> Responder[AnyStr]:
        """Return the responder for a request in front of the app."""
        if self.awaited_options.plan_at_once is not None:
            self._choose_plan(view, self.awaited_options.plan_at_once)
        return self.responder_now

    def responder_at(self, view: RequestView, limits: tuple[EndpointLimit, ...]) -> Responder[AnyStr]:
        """Return the responder for the limits of an endpoint, whose route is `view.route`."""
        if self.awaited_options.plan_at_once is not None:
            self._choose_plan(view, self.awaited_options.plan_at_once)
        return self.fast_paths_at.responder(limits, view.route or "endpoint")

    def _choose_plan(self, view: RequestView, plan_of: Callable[[RequestView], str | None]) -> None:
        """Call the app's `plan` function; if it raises `Unclear`, the request is refused when its rules are read."""
        if view.plan is None:
            try:
                view.plan = plan_of(view)
            except Unclear as reason:
                view.unclear = reason

    def pause(self, delay_us: int) -> Pause:
        """Return the wait of a request that a rule delays."""
        return Pause(self.timers, self.clock, self.clock.now_us() + delay_us)

    def reload(self) -> bool:
        """Read the policy's file again and decide by it; False if the policy stays as it was. For a signal handler."""
        ready = self.policy_file.reload()
        if ready is not None:
            self._take_up(ready)
        return ready is not None

    def _take_up(self, ready: Ready[AnyStr]) -> None:
        """Decide by another policy; its rules are compared with the app's routes at the next request."""
        self._compared, self.looks = False, True
        self._exchange(ready)

    def close(self) -> None:
        """Close the stores that were opened here, after the last counts are published."""
        tell_of_end()
        for store in (*self._owned, *self._opened.values()):
            if hasattr(store, "close"):
                store.close()

    async def aclose(self) -> None:
        """Like `close`, in an event loop."""
        tell_of_end()
        for store in (*self._owned, *self._opened.values()):
            if hasattr(store, "aclose"):
                await store.aclose()
            elif hasattr(store, "close"):
                store.close()
