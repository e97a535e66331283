"""Header fields that scripts of other origins may read."""

from __future__ import annotations

import pytest

from headgate.web import added_fields as web
from headgate.web.headers import ASGI, WSGI
from tests.web.test_headers import DRAFT

pytestmark = pytest.mark.engineless


def test_browsers_are_told_what_they_may_read():
    """Every field that a style sends is exposed, beside what the app exposes already, each once."""
    assert web.exposed_fields(DRAFT) == "RateLimit-Policy, RateLimit, Retry-After"
    assert web.exposed_fields("none") == "Retry-After"
    ledger = [
        ("", "RateLimit, Retry-After"), ("X-Total", "X-Total, RateLimit, Retry-After"),
        ("retry-after,  X-Total ,,", "retry-after, X-Total, RateLimit"), ("*", "*, RateLimit, Retry-After"),
        ("RateLimit, Retry-After", "RateLimit, Retry-After"),
    ]  # fmt: skip
    for existing, merged in ledger:
        assert web.merge_exposed(existing, "RateLimit, Retry-After") == merged


def test_exposing_keeps_the_rest_of_a_response():
    """One field in place of all that were there, in the wire's spelling; the others stay in order."""
    field = "Access-Control-Expose-Headers"
    app = [("Vary", "Origin"), (field, "A"), ("X", "1"), (field.upper(), "b, a")]
    rest = [("Vary", "Origin"), ("X", "1")]
    wsgi, asgi = web.expose_for(("none",), WSGI), web.expose_for(("none",), ASGI)
    assert wsgi(app) == [*rest, (field, "A, b, Retry-After")]
    assert wsgi(rest) == [*rest, (field, "Retry-After")]
    raw = [(name.encode(), value.encode()) for name, value in app]
    assert asgi(raw)[-1] == (b"access-control-expose-headers", b"A, b, Retry-After")
    assert asgi([(b"access-control-expose-headers", b"\xe9")])[-1][1] == b"\xe9, Retry-After"
