"""WSGI: one line in front of Flask, Django, Bottle, Pyramid or any other WSGI app.

app = RateLimitMiddleware(app, policy="policy.yaml", store="shared:///dev/shm/api")
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from http import HTTPStatus
from typing import Any, Final

from headgate.policy import RequestView
from headgate.policy.judge import Judge, Ruling, run
from headgate.stores import Store
from headgate.waiting import sleep_until
from headgate.web.door import Court, Door, PolicyGiven
from headgate.web.headers import WSGI
from headgate.web.refusal import Refusal

Environ = dict[str, Any]
App = Callable[[Environ, Callable[..., Any]], Iterable[bytes]]
FAILED: Final = 500


class RateLimitMiddleware:
    """A policy in front of a WSGI app. The arguments are the ASGI one's; `user` and `claims` take the environ."""

    def __init__(
        self,
        app: App,
        policy: PolicyGiven,
        *,
        store: Store | str | None = None,
        trusted_proxies: Sequence[str] = (),
        proxy_hops: int = 0,
        forwarded_header: str = "x-forwarded-for",
        user: Callable[[Environ], str | None] | None = None,
        plan: Callable[[RequestView], str | None] | None = None,
        claims: Callable[[Environ], Mapping[str, Any] | None] | None = None,
        refusal: Refusal | None = None,
    ) -> None:
        self.app = app
        self.door = Door(
            policy, WSGI, awaited=False, store=store, trusted_proxies=trusted_proxies, proxy_hops=proxy_hops,
            forwarded_header=forwarded_header, plan=plan, refusal=refusal,
        )  # fmt: skip
        self._user = user
        self._claims = claims

    def __call__(self, environ: Environ, start_response: Callable[..., Any]) -> Iterable[bytes]:
        """One request."""
        view = self._view(environ)
        court = self.door.court(view)
        ruling = run(court.judge.before(view))
        if ruling.kind != "pass":
            status, headers, body = court.refuse(ruling, view.header("accept"))
            start_response(_line(status), headers)
            return [] if view.method == "HEAD" else [body]
        if ruling.rule is None:
            return self.app(environ, start_response)
        if ruling.delay_us:
            try:
                sleep_until(self.door.clock, self.door.clock.now_us() + ruling.delay_us)
            except BaseException:
                run(court.judge.release(ruling))
                raise
        return self._pass(environ, start_response, court, ruling)

    def _pass(
        self, environ: Environ, start_response: Callable[..., Any], court: Court[str], ruling: Ruling
    ) -> Iterable[bytes]:
        """Call the app, add what is left to its headers, and count what its response says."""
        fields = court.fields(ruling)
        count = _Count(court.judge, ruling) if ruling.charges else None

        def start(status: str, headers: list[tuple[str, str]], *exc_info: Any) -> Any:  # noqa: ANN401
            given = start_response(status, court.with_fields(headers, fields) if fields else headers, *exc_info)
            if count is not None:
                count.response(status, headers)
            return given

        if count is None:
            return self.app(environ, start)
        try:
            return _Counted(self.app(environ, start), count)
        except BaseException:
            count.no_response()
            raise

    def _view(self, environ: Environ) -> RequestView:
        peer = environ.get("REMOTE_ADDR") or None
        view = RequestView(environ["REQUEST_METHOD"], _path(environ), _Headers(environ), peer, self.door.proxies)
        view.query_string = environ.get("QUERY_STRING", "")
        view.user = self._user(environ) if self._user is not None else environ.get("REMOTE_USER")
        if self._claims is not None:
            view.claims = self._claims(environ)
        return view


class _Count:
    """Counts a request once, by its response or by there being none."""

    def __init__(self, judge: Judge, ruling: Ruling) -> None:
        self._judge, self._ruling, self._done = judge, ruling, False

    def response(self, status: str, headers: list[tuple[str, str]]) -> None:
        told = {name.lower(): value for name, value in headers}
        self._count(int(status[:3]), told.get)

    def no_response(self) -> None:
        self._count(FAILED, lambda name: None)

    def _count(self, status: int, header: Callable[[str], str | None]) -> None:
        if not self._done:
            self._done = True
            run(self._judge.after(self._ruling, status, header))


class _Counted:
    """An app's pieces as they are; one that ends without a response is counted too."""

    def __init__(self, pieces: Iterable[bytes], count: _Count) -> None:
        self._pieces, self._count = pieces, count

    def __iter__(self) -> Iterator[bytes]:
        try:
            yield from self._pieces
        finally:
            self._count.no_response()

    def close(self) -> None:
        """What the app wants closed."""
        try:
            close = getattr(self._pieces, "close", None)
            if close is not None:
                close()
        finally:
            self._count.no_response()


def _path(environ: Environ) -> str:
    """The path, whose bytes WSGI hands over as latin-1."""
    raw = (environ.get("SCRIPT_NAME", "") + environ.get("PATH_INFO", "")) or "/"
    return str(raw).encode("latin-1", "replace").decode("utf-8", "replace")


def _line(status: int) -> str:
    try:
        return f"{status} {HTTPStatus(status).phrase}"
    except ValueError:
        return f"{status} Refused"


class _Headers(Mapping[str, list[str]]):
    """Headers by lower-case name, straight from the environ."""

    __slots__ = ("_environ",)

    def __init__(self, environ: Environ) -> None:
        self._environ = environ

    def __getitem__(self, name: str) -> list[str]:
        key = name.upper().replace("-", "_")
        value = self._environ.get(key if key in ("CONTENT_TYPE", "CONTENT_LENGTH") else f"HTTP_{key}")
        if value is None:
            raise KeyError(name)
        return [value]

    def __iter__(self) -> Iterator[str]:
        return (key[5:].lower().replace("_", "-") for key in self._environ if key.startswith("HTTP_"))

    def __len__(self) -> int:
        return sum(key.startswith("HTTP_") for key in self._environ)
