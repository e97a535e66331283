"""Dialects: the header fields in which servers tell of their limits. Each dialect is a pure function in its own file.

    read(429, {"Retry-After": "30", "X-RateLimit-Limit": "100", "X-RateLimit-Remaining": "0"}, now)
        ->  ServerResponse(429, refused=True, retry_after=30.0, told=(ServerLimit(limit=100, remaining=0),))

The wait is the first that is told as such, in the order of `WAITS` and then `LIMITS`. The limits are those of the first
dialect that tells any. A value that is malformed, negative, not finite or too large to be true is not told.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from headgate.client.dialects import (
    anthropic,
    discord,
    draft_6,
    draft_7,
    draft_11,
    github,
    grpc,
    openai,
    retry_after,
    retry_after_ms,
    shopify,
    x_ratelimit,
)
from headgate.client.dialects.response import Headers, Response, fields_of, tells_nothing
from headgate.client.dialects.should_retry import should_retry as wish_of
from headgate.client.server_limits import ServerLimit, ServerResponse

__all__ = ["LIMITS", "WAITS", "read", "tells_nothing"]
Dialect = Callable[[Response], list[ServerLimit]]
WAITS: Final[tuple[Dialect, ...]] = (retry_after_ms.read, retry_after.read, grpc.read)
LIMITS: Final[tuple[Dialect, ...]] = (
    draft_11.read,
    draft_7.read,
    draft_6.read,
    github.read,
    discord.read,
    x_ratelimit.read,
    openai.read,
    anthropic.read,
    shopify.read,
)


def read(status: int, headers: Headers, now: int, body: bytes = b"") -> ServerResponse:
    """Return what a response tells. `now` is in microseconds; only refusals of GitHub are read from the body.

    Headers are a mapping or pairs, of str or of bytes, in any case. Each character is looked at a bounded number of
    times, and a field of more than 16,384 is not read.
    """
    if not isinstance(headers, Mapping):
        headers = list(headers)  # type: ignore[assignment]
    if status not in (403, 429) and tells_nothing(headers):
        return ServerResponse(status)
    fields = fields_of(headers)
    response = Response(status, fields, now, body)
    told = next(filter(None, (dialect(response) for dialect in LIMITS)), [])
    refused = status == 429 or github.is_refusal(response)
    return ServerResponse(status, refused, _wait(response, told, refused), wish_of(response), tuple(told))


def _wait(response: Response, told: Iterable[ServerLimit], refused: bool) -> float | None:
    waits = (found.retry_after for dialect in WAITS for found in dialect(response))
    explicit = next(waits, None)
    if explicit is None:
        explicit = next((each.retry_after for each in told if each.retry_after is not None), None)
    if explicit is not None or not refused:
        return explicit
    return max((each.reset for each in told if each.reset is not None and not each.remaining), default=None)
