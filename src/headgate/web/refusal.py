"""What a no looks like: a status, header fields, and a body of the kind that the client accepts.

    refuse = Refusal().compile(headers_for(("draft-11",), ASGI), ASGI)(limits)
    refuse(decision, accept)    ->  429, [(b"ratelimit-policy", ...), ..., (b"content-type", ...)],
                                    b'{"type": "https://iana.org/assignments/http-problem-types#quota-exceeded", ...}'

| Accept                   | body                                                                                     |
|--------------------------|------------------------------------------------------------------------------------------|
| application/problem+json | RFC 9457: `type`, `title`, `status`, `violated-policies`, `detail`                       |
| application/json         | `{"error": "quota-exceeded", "retry_after": 12}`; `null` when no wait helps              |
| text/plain               | `The quota is used up. Retry after 12 s.`                                                |

The first also serves those who take anything, say nothing, or take none of these. A limit disclosed as `retry` is not
named; of one disclosed as `none` the wait is not told either. A body that the app brings is sent as it is.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING, Any, AnyStr, Final, NamedTuple, Protocol

from headgate.algorithms.contract import NEVER
from headgate.errors import HeadgateError
from headgate.layout import ANSWER_FIELDS
from headgate.web.disclosure import Disclose, Disclosure, Names, disclosure_for
from headgate.web.headers import Compile, HeaderCodec, HeaderWriter
from headgate.wording import shown

if TYPE_CHECKING:
    from headgate.engine import Decision
    from headgate.limit import Limit

PROBLEM: Final = "application/problem+json"
JSON: Final = "application/json"
TEXT: Final = "text/plain"
OFFERS: Final = {PROBLEM: PROBLEM, JSON: JSON, TEXT: "text/plain; charset=utf-8"}
"""The content type of each, in the order of preference."""

LONGEST_ACCEPT: Final = 256
"""Browsers send about 140 characters. What is longer is not read."""
MOST_RANGES: Final = 16
_RANGE: Final = re.compile(
    r"(?:^|,)[ \t]*(application/(?:problem\+json|json|\*)|text/(?:plain|\*)|\*/\*)[ \t]*(;[^,]*)?(?=,|$)", re.IGNORECASE
)
_WEIGHT: Final = re.compile(r";[ \t]*q[ \t]*=[ \t]*([^;]*)", re.IGNORECASE)
_QUALITY: Final = re.compile(r"(?:0(?:\.\d{0,3})?|1(?:\.0{0,3})?)[ \t]*", re.ASCII)
_CONTENT_TYPE: Final = re.compile(r"[!-.0-~]+/[!-~][ -~]*", re.ASCII)


class Reason(NamedTuple):
    """Why a request is refused; for another status, `QUOTA._replace(status=403)`."""

    status: int
    kind: str
    title: str
    type: str = "about:blank"
    """What the problem is called in the registry of problem types."""
    advice: str = "Try again later."
    """What is said where no wait is told."""
    detail: str = ""
    """What is wrong with this request, in place of the advice and in every kind of body."""


def _registered(status: int, kind: str, title: str) -> Reason:
    return Reason(status, kind, title, f"https://iana.org/assignments/http-problem-types#{kind}")


QUOTA: Final = _registered(429, "quota-exceeded", "The quota is used up")
ABUSE: Final = _registered(429, "abnormal-usage-detected", "The requests follow an abnormal pattern")
CAPACITY: Final = _registered(503, "temporary-reduced-capacity", "The server has less capacity than usual")
BAD_REQUEST: Final = Reason(400, "bad-request", "Bad Request")
UNAUTHORIZED: Final = Reason(401, "unauthorized", "Unauthorized")
FORBIDDEN: Final = Reason(403, "forbidden", "Forbidden", advice="This client may not pass.")

Content = bytes | str | Mapping[str, Any]
"""A mapping is sent as JSON."""
Body = Content | Callable[[Reason, "Decision | None", int | None], Content]
"""A callable is given why, the decision, and the whole seconds to wait; None where no wait helps or none is told."""
Response = tuple[int, list[tuple[AnyStr, AnyStr]], bytes]
"""Status, header fields and body."""


class Refuse(Protocol[AnyStr]):
    """The response to one refused request."""

    def __call__(
        self, decision: Decision | None, accept: str | bytes | None = None, retry_after: float | None = None
    ) -> Response[AnyStr]:
        """The value of `Accept` may be anything; `retry_after` may be later than the decision's own."""
        ...


class CompileRefusal(Protocol[AnyStr]):
    """How to refuse for these limits, as `Compile` does for their fields. The last 1024 answers are kept."""

    def __call__(
        self,
        limits: tuple[Limit, ...] = (),
        names: Names = "",
        disclose: Disclose = "full",
        reason: Reason = QUOTA,
    ) -> Refuse[AnyStr]:
        """A refusal that no limit is to blame for has no limits and no decision."""
        ...


def negotiate(accept: str | bytes | None) -> str:
    """One of `OFFERS`. Whatever the client sent, this takes a bounded time and does not raise."""
    if not accept or len(accept) > LONGEST_ACCEPT:
        return PROBLEM
    return _negotiate(accept)


@lru_cache(maxsize=512)  # clients send few different ones; a flood of others is bounded in number and length
def _negotiate(accept: str | bytes) -> str:
    text = accept.decode("latin-1") if isinstance(accept, bytes) else accept
    ranges: dict[str, float] = {}
    for found in islice(_RANGE.finditer(text), MOST_RANGES):
        ranges.setdefault(found[1].lower(), _quality(found[2] or ""))
    return max(OFFERS, key=lambda offer: _worth(offer, ranges))  # the first of equals, be they worth nothing


def _worth(offer: str, ranges: dict[str, float]) -> float:
    """The quality of the most specific range that covers the offer."""
    for media in (offer, offer.partition("/")[0] + "/*", "*/*"):
        if media in ranges:
            return ranges[media]
    return 0.0


def _quality(parameters: str) -> float:
    """What `q` says: 1 where it is absent, 0 where it cannot be read."""
    weight = _WEIGHT.search(parameters)
    if weight is None:
        return 1.0
    return float(weight[1]) if _QUALITY.fullmatch(weight[1]) else 0.0


class Bodies(NamedTuple):
    """One kind of body, ready but for the number of seconds."""

    before: bytes
    after: bytes
    never: bytes
    hidden: bytes

    def body(self, seconds: int) -> bytes:
        """With what `Disclosure.wait` said."""
        if seconds > 0:
            return b"%b%d%b" % (self.before, seconds, self.after)
        return self.never if seconds == NEVER else self.hidden


@lru_cache(maxsize=1024)
def bodies(reason: Reason, violated: tuple[str, ...]) -> dict[str, Bodies]:
    """The bodies that name these policies, by their media types."""
    members: dict[str, Any] = {"type": reason.type, "title": reason.title, "status": reason.status}
    if violated:
        members["violated-policies"] = violated
    problem = json.dumps(members)[:-1] + ', "detail": "'
    error = json.dumps({"error": reason.kind})[:-1]
    text = f"{reason.title}. "
    advice = reason.detail or reason.advice
    quoted = json.dumps(advice)[1:-1]
    detail = f', "detail": "{quoted}"' if reason.detail else ""
    wait, never = "Retry after ", "No wait helps: it asks for more than can ever pass at once."
    return {
        PROBLEM: _bodies(f"{problem}{wait}", ' s."}', f'{problem}{never}"}}', f'{problem}{quoted}"}}'),
        JSON: _bodies(f'{error}, "retry_after": ', "}", f'{error}, "retry_after": null}}', f"{error}{detail}}}"),
        TEXT: _bodies(f"{text}{wait}", " s.\n", f"{text}{never}\n", f"{text}{advice}\n"),
    }


def _bodies(*texts: str) -> Bodies:
    return Bodies(*(text.encode() for text in texts))


def content(given: Content, content_type: str | None = None) -> tuple[bytes, str]:
    """A body that the app brings, in bytes, and its type."""
    if isinstance(given, bytes):
        return given, content_type or OFFERS[TEXT]
    if isinstance(given, str):
        return given.encode(), content_type or OFFERS[TEXT]
    if isinstance(given, Mapping):
        return json.dumps(dict(given)).encode(), content_type or JSON
    raise HeadgateError(f"a body is bytes, a str or a mapping, or a callable that returns one; got {shown(given)}")


Sent = tuple[bytes, tuple[AnyStr, AnyStr]]
FieldWriter = Callable[["Decision | None", str | bytes | None, int], Sent[AnyStr]]
"""The body, and the field of its content type."""


class Refusal:
    """What every no looks like: by the client's `Accept`, or the body that the app brings instead."""

    def __init__(self, body: Body | None = None, content_type: str | None = None) -> None:
        if content_type is not None and not _CONTENT_TYPE.fullmatch(content_type):
            raise HeadgateError(f"a content type looks like 'text/html; charset=utf-8'; got {shown(content_type)}")
        if body is not None and not callable(body):
            content(body)
        self.body = body
        self.content_type = content_type

    def compile(self, headers: Compile[AnyStr], codec: HeaderCodec[AnyStr]) -> CompileRefusal[AnyStr]:
        """For one kind of server; `headers` is what `headers_for` made for the same wire."""
        length, number = codec.name("Content-Length"), codec.value("%d")

        @lru_cache(maxsize=1024)
        def compiled(
            limits: tuple[Limit, ...] = (), names: Names = "", disclose: Disclose = "full", reason: Reason = QUOTA
        ) -> Refuse[AnyStr]:
            plan = disclosure_for(limits, names, disclose)
            write: HeaderWriter[AnyStr] = headers(limits, names, disclose)
            write_fields = (
                _negotiated(reason, plan, codec) if self.body is None else self._brought(self.body, reason, codec)
            )

            def refuse(
                decision: Decision | None, accept: str | bytes | None = None, retry_after: float | None = None
            ) -> Response[AnyStr]:
                seconds = plan.wait(decision, retry_after)
                body, kind = write_fields(decision, accept, seconds)
                pairs = write(decision, None, seconds)
                pairs += (kind, (length, number % len(body)))
                return reason.status, pairs, body

            return refuse

        return compiled

    def _brought(self, body: Body, reason: Reason, codec: HeaderCodec[AnyStr]) -> FieldWriter[AnyStr]:
        field = codec.name("Content-Type")

        def sent(given: Content) -> Sent[AnyStr]:
            sending, kind = content(given, self.content_type)
            return sending, (field, codec.value(kind))

        if callable(body):
            return lambda decision, accept, seconds: sent(body(reason, decision, seconds if seconds > 0 else None))
        always = sent(body)
        return lambda decision, accept, seconds: always


def _negotiated(reason: Reason, plan: Disclosure, codec: HeaderCodec[AnyStr]) -> FieldWriter[AnyStr]:
    types = {media: (codec.name("Content-Type"), codec.value(value)) for media, value in OFFERS.items()}
    alone = bodies(reason, plan.names) if len(plan.limits) == 1 else None

    def violated(decision: Decision | None) -> tuple[str, ...]:
        answers = decision._answers if decision is not None else []
        each = zip(plan.shown, plan.names, strict=True) if answers else ()
        return tuple([name for place, name in each if not answers[ANSWER_FIELDS * place]])

    def write_fields(decision: Decision | None, accept: str | bytes | None, seconds: int) -> Sent[AnyStr]:
        media = negotiate(accept)
        return (alone or bodies(reason, violated(decision)))[media].body(seconds), types[media]

    return write_fields
