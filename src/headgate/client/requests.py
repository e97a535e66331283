"""`Adapter`: a budget for requests.

session.mount("https://", Adapter(github))
session.mount("https://", Adapter(github, HTTPAdapter(pool_maxsize=50)))
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from io import BytesIO
from typing import Any
from urllib.parse import unquote, urlsplit

from headgate.client.budget import Budget, checked_budget
from headgate.client.outgoing import Outgoing, host_of, refusal_content, refusal_fields
from headgate.client.retrying import Failure
from headgate.errors import BudgetExhausted
from headgate.wording import requiring

with requiring("headgate.client.requests", "requests", extra="requests"):
    from requests import PreparedRequest, Response
    from requests.adapters import BaseAdapter, HTTPAdapter
    from requests.exceptions import ConnectionError as NotConnected
    from requests.exceptions import ConnectTimeout, SSLError, Timeout
    from requests.structures import CaseInsensitiveDict
    from urllib3.exceptions import NewConnectionError


class Adapter(BaseAdapter):
    """Sends requests by another adapter, each in its turn of a budget.

    `inner` is the adapter that sends: by default an `HTTPAdapter` with its defaults.
    """

    def __init__(self, budget: Budget, inner: BaseAdapter | None = None) -> None:
        super().__init__()
        self._budget = checked_budget(budget, "an Adapter")
        self._inner = HTTPAdapter() if inner is None else inner

    def send(self, request: PreparedRequest, *args: Any, **options: Any) -> Response:  # noqa: ANN401
        """Send a request of a session; the inner adapter gets the options, such as `stream` and `timeout`."""
        outgoing = _Request(request, lambda: self._inner.send(request, *args, **options))
        response: Response = self._budget.run(outgoing)
        return response

    def close(self) -> None:
        """Close the adapter that sends."""
        self._inner.close()


class _Request(Outgoing):
    """A request of a session."""

    decompressed = True

    def __init__(self, request: PreparedRequest, send: Callable[[], Response]) -> None:
        self._request, self._send = request, send
        self.method = request.method or "GET"
        url = urlsplit(request.url or "")
        self.host = host_of(url.scheme, url.hostname or "", url.port)
        self.path = unquote(url.path)
        self.headers = {name.lower(): _text(value) for name, value in request.headers.items()}
        body: Any = request.body
        if isinstance(body, str):
            self.body = body.encode("utf-8", "replace")
        elif isinstance(body, bytes) or body is None:
            self.body = body or b""
        else:  # an iterator, or a file that is read as it is sent
            self.body, self.repeatable = None, False

    def send(self) -> Response:
        self._write_added(self._request.headers)
        return self._send()

    def head(self, response: Response) -> tuple[int, Mapping[str, str]]:
        return response.status_code, response.headers

    def content(self, response: Response) -> bytes:
        return response.content

    def close(self, response: Response) -> None:
        response.close()

    def failure(self, error: Exception) -> Failure | None:
        if isinstance(error, SSLError):  # a certificate does not become valid by another attempt
            return None
        if isinstance(error, NotConnected):
            cause = error.args[0] if error.args else None
            unsent = isinstance(error, ConnectTimeout) or isinstance(getattr(cause, "reason", None), NewConnectionError)
            return "refused" if unsent else "lost"
        return "lost" if isinstance(error, Timeout) else None

    def refusal(self, error: BudgetExhausted) -> Response:
        response = Response()
        response.status_code, response.reason = 429, "Too Many Requests"
        response.headers = CaseInsensitiveDict({**refusal_fields(error), "Content-Type": "application/json"})
        response.raw = BytesIO(json.dumps(refusal_content(error)).encode())
        response.encoding = "utf-8"
        response.url, response.request = self._request.url or "", self._request
        return response

    def watch(self, response: Response, feed: Callable[[bytes], None], end: Callable[[], Any]) -> Response:
        response.raw = _Watched(response.raw, feed, end)
        return response


def _text(value: Any) -> str:  # noqa: ANN401 - requests takes both
    return value.decode("latin-1") if isinstance(value, bytes) else str(value)


class _Watched:
    """The raw response of urllib3, whose body is fed to a reader as it is streamed.

    A caller that reads the raw bytes by itself, by `response.raw.read()`, is not watched.
    """

    def __init__(self, raw: Any, feed: Callable[[bytes], None], end: Callable[[], Any]) -> None:  # noqa: ANN401
        self._raw, self._feed, self._end = raw, feed, end
        self._ended = False

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        return getattr(self._raw, name)

    def stream(self, *args: Any, **options: Any) -> Iterator[bytes]:  # noqa: ANN401
        """Yield the body, as the caller asks for it."""
        for chunk in self._raw.stream(*args, **options):
            self._feed(chunk)
            yield chunk
        self._finish()

    def close(self) -> None:
        """Close the response, also before its last byte."""
        try:
            self._raw.close()
        finally:
            self._finish()

    def _finish(self) -> None:
        if not self._ended:
            self._ended = True
            self._end()
