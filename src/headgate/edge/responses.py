"""Responses of the service: status, header fields and body."""

from __future__ import annotations

import json
from http import HTTPStatus
from typing import Any, Final

from headgate.web import RawResponse

JSON: Final = b"application/json"
PROBLEM: Final = b"application/problem+json"


def as_json(value: Any, status: int = 200, kind: bytes = JSON) -> RawResponse[bytes]:  # noqa: ANN401
    """Return a value as a response."""
    body = json.dumps(value, separators=(",", ":"), allow_nan=False).encode()
    return status, [(b"content-type", kind), (b"content-length", b"%d" % len(body)), NOT_STORED], body


def problem(status: int, detail: str, **more: object) -> RawResponse[bytes]:
    """Return a response that tells the mistake in a question, in the form of RFC 9457."""
    title = HTTPStatus(status).phrase
    return as_json({"type": "about:blank", "title": title, "status": status, "detail": detail, **more}, status, PROBLEM)


NOT_STORED: Final = (b"cache-control", b"no-store")
