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
from headgate.web.door import Door, PolicyGiven
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
        judge = self.door.judge(view)
        ruling = run(judge.before(view))
        if ruling.kind != "pass":
            status, headers, body = self.door.refuse(ruling, view.header("accept"))
            start_response(_line(status), headers)
            return [body]
        if ruling.rule is None:
            return self.app(environ, start_response)
        if ruling.delay_us:
            sleep_until(self.door.clock, self.door.clock.now_us() + ruling.delay_us)
        return self._pass(environ, start_response, judge, ruling)

    def _pass(
        self, environ: Environ, start_response: Callable[..., Any], judge: Judge, ruling: Ruling
    ) -> Iterable[bytes]:
        """Call the app, add what is left to its headers, and count what its response says."""
        fields = self.door.fields(ruling)
        counted = not ruling.charges

        def start(status: str, headers: list[tuple[str, str]], *exc_info: Any) -> Any:  # noqa: ANN401
            nonlocal counted
            given = start_response(status, self.door.with_fields(headers, fields) if fields else headers, *exc_info)
            if not counted:
                counted = True
                told = {name.lower(): value for name, value in headers}
                run(judge.after(ruling, int(status.split(" ", 1)[0]), told.get))
            return given

        try:
            return self.app(environ, start)
        except BaseException:
            if not counted:
                run(judge.after(ruling, FAILED, lambda name: None))
            raise

    def _view(self, environ: Environ) -> RequestView:
        peer = environ.get("REMOTE_ADDR") or None
        view = RequestView(environ["REQUEST_METHOD"], _path(environ), _Headers(environ), peer, self.door.proxies)
        view.query_string = environ.get("QUERY_STRING", "")
        view.user = self._user(environ) if self._user is not None else environ.get("REMOTE_USER")
        if self._claims is not None:
            view.claims = self._claims(environ)
        return view


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
