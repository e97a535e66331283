"""Bodies of refusals that an app gives, or makes for each refusal."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, AnyStr, Final, NamedTuple

from headgate.errors import HeadgateError
from headgate.web.headers import HeaderCodec
from headgate.wording import shown

if TYPE_CHECKING:
    from headgate.engine import Decision

JSON: Final = "application/json"
PLAIN: Final = "text/plain; charset=utf-8"


class Reason(NamedTuple):
    """Why a request is refused; for another status, `QUOTA._replace(status=403)`."""

    status: int
    kind: str
    title: str
    type: str = "about:blank"
    """The URI of the problem in the registry of problem types."""
    advice: str = "Try again later."
    """The text if no wait is shown."""
    detail: str = ""
    """The mistake in this request; replaces the advice, in every kind of body."""
    overload: str = ""
    """Why a load shedder refuses it: the member `reason` of both kinds of JSON."""


Content = bytes | str | Mapping[str, Any]
"""A mapping is sent as JSON."""
Body = Content | Callable[..., Content]
"""A callable takes the reason, the decision, and the seconds to wait: None if no wait helps or none is shown. One with
a fourth parameter also takes the request, as the function `user` of the edge does; None for a refusal without one."""


def content(given: Content, content_type: str | None = None) -> tuple[bytes, str]:
    """Return a body given by the app as bytes, and its content type."""
    if isinstance(given, bytes):
        return given, content_type or PLAIN
    if isinstance(given, str):
        return given.encode(), content_type or PLAIN
    if isinstance(given, Mapping):
        return json.dumps(dict(given)).encode(), content_type or JSON
    raise HeadgateError(f"a body must be bytes, a str, a mapping, or a callable that returns one; got {shown(given)}")


Sent = tuple[bytes, tuple[AnyStr, AnyStr]]
FieldWriter = Callable[["Decision | None", str | bytes | None, int, object], Sent[AnyStr]]
"""Returns the body, and the field of its content type, for a request."""


def brought(body: Body, content_type: str | None, reason: Reason, codec: HeaderCodec[AnyStr]) -> FieldWriter[AnyStr]:
    """Return the writer of a body that the app gives, or makes."""
    field = codec.name("Content-Type")

    def sent(given: Content) -> Sent[AnyStr]:
        sending, kind = content(given, content_type)
        return sending, (field, codec.value(kind))

    if not callable(body):
        always = sent(body)
        return lambda decision, accept, seconds, request: always
    sees = _takes_request(body)

    def made(decision: Decision | None, accept: str | bytes | None, seconds: int, request: object) -> Sent[AnyStr]:
        told = (reason, decision, seconds if seconds > 0 else None)
        return sent(body(*told, request) if sees else body(*told))

    return made


def _takes_request(body: Callable[..., Content]) -> bool:
    """Return whether a function has a fourth parameter."""
    try:
        inspect.signature(body).bind(None, None, None, None)
    except (TypeError, ValueError):
        return False
    return True
