"""What every edge shares: stores, the policy of now, who the client is, and the limits of single endpoints.

An edge turns its framework's request into a `RequestView`, and a outcome into its framework's response. Everything else
is here and in `responder.py`, once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, AnyStr, Final, Generic, NamedTuple, TypedDict

from headgate.clock import SystemClock
from headgate.policy import Policy, Proxies, RequestView
from headgate.policy.bounded_cache import BoundedCache
from headgate.policy.carried import Carried, Reload, compare, with_carried
from headgate.policy.match import METHODS
from headgate.policy.reload import PolicyFile
from headgate.policy.values import Unclear
from headgate.stores import Store, open_store
from headgate.waiting.timers import Timers
from headgate.web.endpoint import EndpointLimit, rules_at
from headgate.web.headers import HeaderCodec
from headgate.web.misconfiguration import Misconfiguration, warn_of_workers
from headgate.web.refusal import Refusal
from headgate.web.responder import Found, Responder
from headgate.web.unreached import Route, tell_of_unreached
from headgate.wording import explained, log_of

PolicyGiven = Policy | str | Path | Mapping[str, Any]
NO_RULES: Final[Mapping[str, Any]] = {"namespace": "policy", "rules": []}
"""The policy of an app whose limits are all at its endpoints."""
log = log_of("headgate.web")


class Options(TypedDict, total=False):
    """What every edge can be told.

    `store` is a URL or a store. `trusted_proxies` are networks whose forwarded headers are believed (`proxy_hops`
    instead, where only their number is known). `user` and `claims` take the framework's request and say who it is, for
    keys and plans. `plan` takes the request's view. `refusal` says what a no looks like.
    """

    store: Store | str | None
    trusted_proxies: Sequence[str]
    proxy_hops: int
    forwarded_header: str
    user: Callable[[Any], str | None] | None
    claims: Callable[[Any], Mapping[str, Any] | None] | None
    plan: Callable[[RequestView], str | None] | None
    refusal: Refusal | None


class Ready(NamedTuple, Generic[AnyStr]):
    """A policy that can be taken up at once."""

    store: Store
    policy: Policy
    """As it was read."""
    reload: Reload
    responder: Responder[AnyStr]


class Runtime(Generic[AnyStr]):
    """A policy in front of an app. `read` makes a view of the framework's request."""

    @explained
    def __init__(
        self,
        policy: PolicyGiven | None,
        codec: HeaderCodec[AnyStr],
        read: Callable[[Any, Proxies | None], RequestView],
        *,
        awaited: bool,
        store: Store | str | None = None,
        trusted_proxies: Sequence[str] = (),
        proxy_hops: int = 0,
        forwarded_header: str = "x-forwarded-for",
        user: Callable[[Any], str | None] | None = None,
        claims: Callable[[Any], Mapping[str, Any] | None] | None = None,
        plan: Callable[[RequestView], str | None] | None = None,
        refusal: Refusal | None = None,
    ) -> None:
        self._file: PolicyFile[Ready[AnyStr]] = PolicyFile(NO_RULES if policy is None else policy, self._prepare)
        self._codec: HeaderCodec[AnyStr] = codec
        self._read = read
        self._awaited = awaited
        self.store = open_store(store, None)
        self._home = self.store
        self._opened: dict[str, Store] = {}
        """By URL."""
        self._owned = [self.store] if self.store is not store else []
        proxies = Proxies(trusted_proxies, hops=proxy_hops, header=forwarded_header)
        self.proxies = proxies if trusted_proxies or proxy_hops else None
        self._user = user
        self._claims = claims
        self._plan = plan
        self.clock = SystemClock()
        self.timers = Timers(self.clock)
        self._refusal = refusal or Refusal()
        self.check: Callable[[], None] | None = None
        """What an edge has to find right before the first request; until it does, it raises."""
        self.routes: Callable[[], Iterable[Route] | None] | None = None
        """The app's routes, where its edge knows them: rules that meet none of them are told of."""
        self._compared = False
        self._plain = self._file.policy
        """The policy of now, as it was read."""
        self._carried: tuple[Carried, ...] = ()
        """Limits of earlier policies that go on for a while."""
        self._misconfiguration: Misconfiguration | None = Misconfiguration(self.proxies is not None)
        self.looks = True
        """Something is to be looked at with each request, before its fast_path."""
        self._exchange(self._prepare(self._plain))
        warn_of_workers([self.store, *self._opened.values()])

    @property
    def namespace(self) -> str:
        """Of every count made here."""
        return self.policy.namespace

    @property
    def policy(self) -> Policy:
        """The policy of now."""
        return self._responder.compiled.policy

    @property
    def responder_now(self) -> Responder[AnyStr]:
        """The responder of the policy of now."""
        return self._responder

    @property
    def awaits(self) -> bool:
        """Some of the stores have to be awaited."""
        return self._responder.compiled.awaits

    def _use(self, store: Store) -> None:
        """Count there from now on, whatever the rules say; `headgate.testing` does so for a while."""
        self.store = store
        self._exchange(self._prepare(self._plain))

    def _prepare(self, policy: Policy) -> Ready[AnyStr]:
        """Everything that takes time or can fail before a policy is used; in a thread, where a file has changed."""
        store = self.store
        reload = compare(self._plain, policy, self._carried, store.clock.now_us())
        responder = self._open(with_carried(policy, reload.carried))
        responder.compiled.bind()
        return Ready(store, policy, reload, responder)

    def _exchange(self, ready: Ready[AnyStr]) -> None:
        """Rule by this policy from now on; whoever is under way goes on by the old one."""
        if ready.store is not self.store:  # bound elsewhere while it was made ready
            self._file.read_again()
            return
        self._plain = ready.policy
        self._carried = ready.reload.taken_up(ready.store.clock.now_us())
        for level, line in ready.reload.told:
            log.log(level, line)
        self._responder: Responder[AnyStr] = ready.responder
        self._routes: dict[tuple[tuple[EndpointLimit, ...], str], Responder[AnyStr]] = {}
        self._fast_paths_at: dict[tuple[tuple[EndpointLimit, ...], str, str], Found[AnyStr] | None] = {}
        find = self._responder.fast_path_for if self._plan is None else _no_fast_path
        self.fast_paths: BoundedCache[Found[AnyStr] | None] = BoundedCache(find)  # last: who sees it sees the others
        """By method and path; None where each request has to be looked at."""

    def _open(self, policy: Policy) -> Responder[AnyStr]:
        stores = {"": self.store}
        for name, url in policy.stores.items():
            if url not in self._opened:
                self._keep(url, open_store(url, None))
            stores[name] = self._opened[url] if self.store is self._home else self.store
        return Responder(policy, stores, self._codec, self._refusal, self._awaited)

    def _keep(self, url: str, store: Store) -> None:
        """Keep one store for each URL, also where two threads have opened it at the same time."""
        if self._opened.setdefault(url, store) is not store and hasattr(store, "close"):
            store.close()

    def view(self, request: Any) -> RequestView:  # noqa: ANN401
        """A request as policies see it."""
        view = self._read(request, self.proxies)
        if self._user is not None:
            view.user = self._user(request)
        if self._claims is not None:
            view.claims = self._claims(request)
        if self.policy.tokens is not None:
            view.claims_of = self.policy.tokens.claims
        return view

    def look(self, request: Any) -> None:  # noqa: ANN401
        """Look whether the policy's file has changed, and for what is probably set up wrong; while `looks`."""
        if self.check is not None:
            self.check()
            self.check = None
        ready = self._file.next()
        if ready is not None:
            self._take_up(ready)
        elif self._carried and min(each.until_us for each in self._carried) <= self.store.clock.now_us():
            self._exchange(self._prepare(self._plain))
        if self._misconfiguration is not None and not self._misconfiguration.look(self.view(request)):
            self._misconfiguration = None
        if not self._compared:
            self._compare()
        self.looks = self._misconfiguration is not None or self._file.can_change

    def _compare(self) -> None:
        """Tell of rules that meet no route, once for each policy: at a request, as apps add routes until then."""
        self._compared = True
        try:
            routes = None if self.routes is None else self.routes()
            if routes is not None:
                tell_of_unreached(self.policy, routes)
        except Exception:  # whatever an app has among its routes: it is served all the same
            log.info("the routes of the app could not be compared with the rules", exc_info=True)

    def responder(self, view: RequestView) -> Responder[AnyStr]:
        """Where this request is ruled on."""
        if self._plan is not None and view.plan is None:
            self._choose_plan(view)
        return self._responder

    def _choose_plan(self, view: RequestView) -> None:
        """Ask the app's function; a request that it cannot read is refused when it is ruled on."""
        if self._plan is not None:
            try:
                view.plan = self._plan(view)
            except Unclear as reason:
                view.unclear = reason

    def responder_at(self, view: RequestView, limits: tuple[EndpointLimit, ...]) -> Responder[AnyStr]:
        """Where the limits of the endpoint are ruled on that the request has come to; `view.route` says which."""
        if self._plan is not None and view.plan is None:
            self._choose_plan(view)
        return self._responder_of(limits, view.route or "endpoint")

    def fast_path_at(self, limits: tuple[EndpointLimit, ...], route: str, method: str) -> Found[AnyStr] | None:
        """The fast path of an endpoint; None where each request has to be looked at."""
        if self._plan is not None:
            return None
        fast_paths = self._fast_paths_at  # not of another policy that comes meanwhile
        if method not in METHODS:  # the client's own, and all the same to rules
            method = ""
        try:
            return fast_paths[limits, route, method]
        except KeyError:
            found = fast_paths[limits, route, method] = self._responder_of(limits, route).fast_path_at(method, route)
            return found

    def _responder_of(self, limits: tuple[EndpointLimit, ...], route: str) -> Responder[AnyStr]:
        routes = self._routes
        responder = routes.get((limits, route))
        if responder is None:  # once for each endpoint: routes are the app's, not the client's
            responder = self._open(self.policy.with_rules(rules_at(route, limits)))
            routes[limits, route] = responder
        return responder

    def reload(self) -> bool:
        """Read the policy's file again now, and rule by it; false where it stays as it was. For a signal handler."""
        ready = self._file.reload()
        if ready is not None:
            self._take_up(ready)
        return ready is not None

    def _take_up(self, ready: Ready[AnyStr]) -> None:
        """Another policy: its rules are compared with the app's routes at the next request."""
        self._exchange(ready)
        self._compared, self.looks = False, True

    def close(self) -> None:
        """Let go of the stores that were opened here."""
        for store in (*self._owned, *self._opened.values()):
            if hasattr(store, "close"):
                store.close()

    async def aclose(self) -> None:
        """As `close`, in an event loop."""
        for store in (*self._owned, *self._opened.values()):
            if hasattr(store, "aclose"):
                await store.aclose()
            elif hasattr(store, "close"):
                store.close()


def _no_fast_path(method: str, path: str) -> None:
    """A plan is the app's to tell, for each request."""
