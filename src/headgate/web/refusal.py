"""The response to a refused request: a status, header fields, and a body of a type that the client accepts.

    refuse = Refusal().compile(headers_for(("draft-11",), ASGI), ASGI)(limits)
    refuse(decision, accept)    ->  429, [(b"ratelimit-policy", ...), ..., (b"content-type", ...)],
                                    b'{"type": "https://iana.org/assignments/http-problem-types#quota-exceeded", ...}'

| Accept                   | body                                                                                     |
|--------------------------|------------------------------------------------------------------------------------------|
| application/problem+json | RFC 9457: `type`, `title`, `status`, `violated-policies`, `detail`                       |
| application/json         | `{"error": "quota-exceeded", "retry_after": 12}`; `null` when no wait helps              |
| text/plain               | `The quota is used up. Retry after 12 s.`                                                |

Clients that accept anything, send no `Accept`, or accept none of these get the first. A limit disclosed as `retry` is
not named; for one disclosed as `none` the wait is not shown either. A body given by the app is sent unchanged.
"""

from __future__ import annotations

import json
import re
from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING, Any, AnyStr, Final, NamedTuple, Protocol

from headgate.algorithms import NEVER
from headgate.errors import HeadgateError, InvalidCall
from headgate.layout import ANSWER_FIELDS
from headgate.web.app_bodies import Body, FieldWriter, Reason, Sent, brought, content
from headgate.web.disclosure import Disclose, Disclosure, Names, disclosure_for
from headgate.web.headers import Compile, HeaderCodec, HeaderWriter
from headgate.wording import shown

if TYPE_CHECKING:
    from headgate.engine import Decision
    from headgate.limit import Limit

PROBLEM: Final = "application/problem+json"
JSON: Final = "application/json"
TEXT: Final = "text/plain"
HTML: Final = "text/html"
HTML_IN_UTF8: Final = "text/html; charset=utf-8"
OFFERS: Final = {PROBLEM: PROBLEM, JSON: JSON, TEXT: "text/plain; charset=utf-8"}
"""The content type of each kind of body, in the order of preference."""

LONGEST_ACCEPT: Final = 256
"""Browsers send about 140 characters. A longer header is not read."""
MOST_RANGES: Final = 16
MOST_REMEMBERED: Final = 256
_RANGE: Final = re.compile(
    r"(?:^|,)[ \t]*(application/(?:problem\+json|json|\*)|text/(?:plain|html|\*)|\*/\*)[ \t]*(;[^,]*)?(?=,|$)",
    re.IGNORECASE,
)
_WEIGHT: Final = re.compile(r";[ \t]*q[ \t]*=[ \t]*([^;]*)", re.IGNORECASE)
_QUALITY: Final = re.compile(r"(?:0(?:\.\d{0,3})?|1(?:\.0{0,3})?)[ \t]*", re.ASCII)
_CONTENT_TYPE: Final = re.compile(r"[!-.0-~]+/[!-~][ -~]*", re.ASCII)


def _registered(status: int, kind: str, title: str) -> Reason:
    return Reason(status, kind, title, f"https://iana.org/assignments/http-problem-types#{kind}")


QUOTA: Final = _registered(429, "quota-exceeded", "The quota is used up")
CAPACITY: Final = _registered(503, "temporary-reduced-capacity", "The server has less capacity than usual")
BAD_REQUEST: Final = Reason(400, "bad-request", "Bad Request")
UNAUTHORIZED: Final = Reason(401, "unauthorized", "Unauthorized")
FORBIDDEN: Final = Reason(403, "forbidden", "Forbidden", advice="This client may not pass.")

Response = tuple[int, list[tuple[AnyStr, AnyStr]], bytes]
"""Status, header fields and body."""


class Refuse(Protocol[AnyStr]):
    """Builds the response to one refused request."""

    def __call__(
        self,
        decision: Decision | None,
        accept: str | bytes | None = None,
        retry_after: float | None = None,
        request: object = None,
    ) -> Response[AnyStr]:
        """Return the response. `accept` may be any text; `retry_after` may be later than the decision's own."""
        ...


class CompileRefusal(Protocol[AnyStr]):
    """Return the `Refuse` for these limits, as `Compile` does for their fields. The last 1024 are kept."""

    def __call__(
        self,
        limits: tuple[Limit, ...] = (),
        names: Names = "",
        disclose: Disclose = "full",
        reason: Reason = QUOTA,
    ) -> Refuse[AnyStr]:
        """A refusal that no limit caused has no limits and no decision."""
        ...


def negotiate(accept: str | bytes | None, page: bool = False) -> str:
    """Return one of `OFFERS`, or `HTML` if there is a page, in bounded time and without raising, for any text."""
    if not accept or len(accept) > LONGEST_ACCEPT:
        return PROBLEM
    return _negotiate(accept, page)


@lru_cache(maxsize=512)  # clients send few different values; a flood of others is bounded in number and length
def _negotiate(accept: str | bytes, page: bool) -> str:
    text = accept.decode("latin-1") if isinstance(accept, bytes) else accept
    ranges: dict[str, float] = {}
    for found in islice(_RANGE.finditer(text), MOST_RANGES):
        ranges.setdefault(found[1].lower(), _quality(found[2] or ""))
    offers = (*OFFERS, HTML) if page else OFFERS
    return max(offers, key=lambda offer: _worth(offer, ranges))  # the first of equals, even if all are 0


def _worth(offer: str, ranges: dict[str, float]) -> float:
    """Return the quality of the most specific range that covers the offer."""
    for media in (offer, offer.partition("/")[0] + "/*", "*/*"):
        if media in ranges:
            return ranges[media]
    return 0.0


def _quality(parameters: str) -> float:
    """Return the value of `q`: 1 if it is absent, 0 if it cannot be read."""
    weight = _WEIGHT.search(parameters)
    if weight is None:
        return 1.0
    return float(weight[1]) if _QUALITY.fullmatch(weight[1]) else 0.0


class Bodies(NamedTuple):
    """One kind of body, complete but for the number of seconds."""

    before: bytes
    after: bytes
    never: bytes
    hidden: bytes

    def body(self, seconds: int) -> bytes:
        """Return the body for a result of `Disclosure.wait`."""
        if seconds > 0:
            return b"%b%d%b" % (self.before, seconds, self.after)
        return self.never if seconds == NEVER else self.hidden


@lru_cache(maxsize=1024)
def bodies(reason: Reason, violated: tuple[str, ...]) -> dict[str, Bodies]:
    """Return the bodies that name these policies, by media type."""
    members: dict[str, Any] = {"type": reason.type, "title": reason.title, "status": reason.status}
    if violated:
        members["violated-policies"] = violated
    why = {"reason": reason.overload} if reason.overload else {}
    problem = json.dumps({**members, **why})[:-1] + ', "detail": "'
    error = json.dumps({"error": reason.kind, **why})[:-1]
    text = f"{reason.title}. "
    advice = reason.detail or reason.advice
    quoted = json.dumps(advice)[1:-1]
    detail = f', "detail": "{quoted}"' if reason.detail else ""
    wait, never = "Retry after ", "No wait helps: it asks for more than can ever pass at once."
    end = ". " if reason.detail[-1:].isalnum() else " "  # another sentence follows
    said, told = (f"{reason.detail}{end}", f"{quoted}{end}") if reason.detail else ("", "")
    known = f'{error}{detail}, "retry_after": '
    return {
        PROBLEM: _bodies(f"{problem}{told}{wait}", ' s."}', f'{problem}{told}{never}"}}', f'{problem}{quoted}"}}'),
        JSON: _bodies(known, "}", f"{known}null}}", f"{error}{detail}}}"),
        TEXT: _bodies(f"{text}{said}{wait}", " s.\n", f"{text}{said}{never}\n", f"{text}{advice}\n"),
    }


def _bodies(*texts: str) -> Bodies:
    return Bodies(*(text.encode() for text in texts))


class Refusal:
    """The body of every refusal: chosen by the client's `Accept`, or given by the app."""

    def __init__(self, body: Body | None = None, content_type: str | None = None, *, html: Body | None = None) -> None:
        if html is not None and body is not None:
            raise InvalidCall("a body is sent to every client, so html would never be: leave one of both out")
        if content_type is not None and not _CONTENT_TYPE.fullmatch(content_type):
            raise HeadgateError(f"invalid content type {shown(content_type)}; write 'text/html; charset=utf-8', say")
        for given in (body, html):
            if given is not None and not callable(given):
                content(given)
        self.body = body
        self.html = html
        """The page for browsers, which prefer HTML; programs get JSON or text."""
        self.content_type = content_type

    def compile(self, headers: Compile[AnyStr], codec: HeaderCodec[AnyStr]) -> CompileRefusal[AnyStr]:
        """Compile for one server interface; `headers` is the result of `headers_for` with the same codec."""
        length, number = codec.name("Content-Length"), codec.value("%d")

        @lru_cache(maxsize=1024)
        def compiled(
            limits: tuple[Limit, ...] = (), names: Names = "", disclose: Disclose = "full", reason: Reason = QUOTA
        ) -> Refuse[AnyStr]:
            plan = disclosure_for(limits, names, disclose)
            write: HeaderWriter[AnyStr] = headers(limits, names, disclose)
            write_fields = self._writer(reason, plan, codec)

            def refuse(
                decision: Decision | None,
                accept: str | bytes | None = None,
                retry_after: float | None = None,
                request: object = None,
            ) -> Response[AnyStr]:
                seconds = plan.wait(decision, retry_after)
                body, kind = write_fields(decision, accept, seconds, request)
                pairs = write(decision, None, seconds)
                pairs += (kind, (length, number % len(body)))
                return reason.status, pairs, body

            return refuse if limits or self.body is not None or self.html is not None else remembering(refuse)

        return compiled

    def _writer(self, reason: Reason, plan: Disclosure, codec: HeaderCodec[AnyStr]) -> FieldWriter[AnyStr]:
        if self.body is not None:
            return brought(self.body, self.content_type, reason, codec)
        negotiated = _negotiated(reason, plan, codec)
        if self.html is None:
            return negotiated
        page = brought(self.html, self.content_type or HTML_IN_UTF8, reason, codec)

        def write_fields(
            decision: Decision | None, accept: str | bytes | None, seconds: int, request: object
        ) -> Sent[AnyStr]:
            chosen = page if negotiate(accept, page=True) == HTML else negotiated
            return chosen(decision, accept, seconds, request)

        return write_fields


def remembering(refuse: Refuse[AnyStr]) -> Refuse[AnyStr]:
    """Return `refuse` for refusals that no limit causes: an overloaded server sends the same few all the time."""
    known: dict[tuple[str, float | None], Response[AnyStr]] = {}

    def remembered(
        decision: Decision | None,
        accept: str | bytes | None = None,
        retry_after: float | None = None,
        request: object = None,
    ) -> Response[AnyStr]:
        named = (negotiate(accept), retry_after)
        answer = known.get(named)
        if answer is None:
            answer = refuse(decision, accept, retry_after, request)
            if len(known) < MOST_REMEMBERED:
                known[named] = answer
        status, pairs, body = answer
        return status, pairs.copy(), body  # edges add to them

    return remembered


def _negotiated(reason: Reason, plan: Disclosure, codec: HeaderCodec[AnyStr]) -> FieldWriter[AnyStr]:
    types = {media: (codec.name("Content-Type"), codec.value(value)) for media, value in OFFERS.items()}
    alone = bodies(reason, plan.names) if len(plan.limits) <= 1 else None

    def violated(decision: Decision | None) -> tuple[str, ...]:
        answers = decision._answers if decision is not None else []
        each = zip(plan.shown, plan.names, strict=True) if answers else ()
        return tuple([name for place, name in each if not answers[ANSWER_FIELDS * place]])

    def write_fields(
        decision: Decision | None, accept: str | bytes | None, seconds: int, request: object
    ) -> Sent[AnyStr]:
        media = negotiate(accept)
        return (alone or bodies(reason, violated(decision)))[media].body(seconds), types[media]

    return write_fields
