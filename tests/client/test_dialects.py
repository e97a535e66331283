"""Dialects of header fields: a ledger of responses as servers send them, and what they tell."""

from __future__ import annotations

import pytest

from headgate import Limiter
from headgate.client.dialects import read
from headgate.client.server_limits import ServerLimit, ServerResponse
from headgate.clock import SECOND
from headgate.testing import ManualClock
from headgate.web.headers import ASGI, WSGI, headers_for

pytestmark = pytest.mark.engineless

NOW = 1_794_859_200 * SECOND
"""16 November 2026, 20:00:00 UTC."""
EPOCH = NOW // SECOND


def fields(text: str) -> list[tuple[str, str]]:
    """Header lines as pairs."""
    lines = (line.strip().partition(":") for line in text.strip().splitlines())
    return [(name, value.strip()) for name, _, value in lines]


def told(text: str, status: int = 200, body: bytes = b"") -> tuple[ServerLimit, ...]:
    """The limits that these header lines tell."""
    return read(status, fields(text), NOW, body).told


def wait(text: str, status: int = 429, body: bytes = b"") -> float | None:
    """The seconds to wait that these header lines tell."""
    return read(status, fields(text), NOW, body).retry_after


WAITS = [
    ("Retry-After: 30", 30.0),  # Slack, Stripe
    ("Retry-After: 0", 0.0),
    ("Retry-After: 2.0", 2.0),  # Shopify
    ("retry-after: 0.25", 0.25),
    ("Retry-After: 30, 60", 30.0),
    ("Retry-After: Mon, 16 Nov 2026 20:01:30 GMT", 90.0),
    ("Retry-After: Monday, 16-Nov-26 20:01:30 GMT", 90.0),
    ("Retry-After: Mon Nov 16 20:01:30 2026", 90.0),
    ("Retry-After: Mon, 16 Nov 2026 19:00:00 GMT", 0.0),
    ("Retry-After: Mon, 16 Nov 2026 20:01:60 GMT", 119.0),
    ("retry-after-ms: 1250", 1.25),
    ("retry-after-ms: 1250\nretry-after: 2", 1.25),
    ("x-ms-retry-after-ms: 33\nretry-after: 1", 0.033),
    ("retry-after-ms: soon\nretry-after: 2", 2.0),
    ("retry-after-ms: -1\nretry-after: 2", 2.0),
    ("retry-after-ms: nan\nretry-after: inf", None),
    ("grpc-retry-pushback-ms: 1500", 1.5),
    ("grpc-retry-pushback-ms: -1", None),
    ("Retry-After: 259200", 259_200.0),
    ("Retry-After: 99999999999", None),
    ("Retry-After: -5", None),
    ("Retry-After: 1e3", None),
    ("Retry-After: 1_000", None),
    ("Retry-After: ٣", None),
    ("Retry-After: Mon, 16 Nov 9999 20:01:30 GMT", None),
    ("Retry-After: Mon, 16 Foo 2026 20:01:30 GMT", None),
    ("Retry-After: Mon, 36 Nov 2026 20:01:30 GMT", None),
    ("Retry-After:", None),
    ("", None),
]


@pytest.mark.parametrize(("lines", "seconds"), WAITS)
def test_a_ledger_of_waits(lines, seconds):
    """Milliseconds before seconds, seconds or one of three dates; a wait that is not one is not told."""
    assert wait(lines) == seconds
    assert wait(lines, 503) == seconds


@pytest.mark.parametrize(
    ("lines", "seconds"),
    [
        ("Date: Mon, 16 Nov 2026 20:01:00 GMT\nRetry-After: Mon, 16 Nov 2026 20:01:30 GMT", 30.0),
        ("Date: Mon, 16 Nov 2026 20:01:00 GMT\nRetry-After: 30", 30.0),
        (f"Date: Mon, 16 Nov 2026 19:58:00 GMT\nX-RateLimit-Remaining: 0\nX-RateLimit-Reset: {EPOCH - 100}", 20.0),
        (f"Date: yesterday\nX-RateLimit-Remaining: 0\nX-RateLimit-Reset: {EPOCH + 100}", 100.0),
    ],
)
def test_instants_are_read_against_the_date_of_the_response(lines, seconds):
    """The clocks of client and server differ by minutes; a wait in seconds does not depend on them."""
    assert wait(lines) == seconds


LIMITS = [
    # our own middleware, Cloudflare
    (
        'RateLimit-Policy: "burst";q=100;w=60, "daily";q=1000;w=86400\n'
        'RateLimit: "burst";r=50;t=30, "daily";r=950;t=4320',
        [ServerLimit("burst", 100, 60.0, 50, 30.0), ServerLimit("daily", 1000, 86_400.0, 950, 4320.0)],
    ),
    ('RateLimit: "x";a=7;w=30\nRateLimit-Policy: "x";q=10;w=60', [ServerLimit("x", 10, 60.0, 7, 30.0)]),
    (
        'RateLimit: default;r=0;t=1\nRateLimit-Policy: default; q=5; w=1; pk=:Zm9v:',
        [ServerLimit("default", 5, 1.0, 0, 1.0)],
    ),
    (
        'RateLimit-Policy: "a";q=5;w=1\nRateLimit-Policy: "b";q=6;w=2',
        [ServerLimit("a", 5, 1.0), ServerLimit("b", 6, 2.0)],
    ),
    ('RateLimit-Policy: "a";q=5;w=1\nRateLimit: "b";r=6', [ServerLimit("b", remaining=6), ServerLimit("a", 5, 1.0)]),
    ('RateLimit: "a\\"b";r=6', [ServerLimit('a"b', remaining=6)]),
    ('RateLimit-Policy: "a";q=9;qu="concurrent-requests"\nRateLimit: "a";r=9', []),
    ('RateLimit-Policy: "a";q=9;w=1;qu="content-bytes", "b";q=9;w=1;qu="requests"', [ServerLimit("b", 9, 1.0)]),
    ('RateLimit: "a";r=6\nX-RateLimit-Remaining: 3', [ServerLimit("a", remaining=6)]),
    ('RateLimit: "a";r=\nX-RateLimit-Remaining: 3', [ServerLimit(remaining=3)]),
    ('RateLimit: "a";r=-1;t=5\nX-RateLimit-Remaining: 3', [ServerLimit(remaining=3)]),
    ('RateLimit: "a";r=1;t=99999999999', [ServerLimit("a", remaining=1)]),
    # express-rate-limit, draft 7 and draft 6
    (
        "RateLimit-Policy: 100;w=60\nRateLimit: limit=100, remaining=50, reset=30",
        [ServerLimit(None, 100, 60.0, 50, 30.0)],
    ),
    ("RateLimit: limit=100,remaining=0", [ServerLimit(None, 100, None, 0)]),
    ("RateLimit: limit=100, colour=red", []),
    (
        "RateLimit-Policy: 100;w=60\nRateLimit-Limit: 100\nRateLimit-Remaining: 50\nRateLimit-Reset: 30",
        [ServerLimit(None, 100, 60.0, 50, 30.0)],
    ),
    # GitLab: the reset of draft 6 as an epoch
    (
        f"RateLimit-Limit: 60\nRateLimit-Observed: 67\nRateLimit-Remaining: 0\nRateLimit-Reset: {EPOCH + 30}",
        [ServerLimit(None, 60, None, 0, 30.0)],
    ),
    # Envoy
    (
        'x-ratelimit-limit: 10, 10;w=1;name="a", 1000;w=3600\nx-ratelimit-remaining: 9\nx-ratelimit-reset: 1',
        [ServerLimit(None, 10, 1.0, 9, 1.0)],
    ),
    ("x-ratelimit-limit: 10, 10;w=1, 10;w=60", [ServerLimit(None, 10)]),
    # slowapi, our epoch style
    (
        f"X-RateLimit-Limit: 100\nX-RateLimit-Remaining: 99\nX-RateLimit-Reset: {EPOCH + 61}",
        [ServerLimit(None, 100, None, 99, 61.0)],
    ),
    (f"X-RateLimit-Reset: {EPOCH + 61}.5", [ServerLimit(reset=61.5)]),
    (f"X-RateLimit-Reset: {(EPOCH + 61) * 1000 + 250}", [ServerLimit(reset=61.25)]),
    ("X-RateLimit-Reset: 2026-11-16T20:01:00Z", [ServerLimit(reset=60.0)]),
    ("X-RateLimit-Reset: 2026-11-16T21:01:00.5+01:00", [ServerLimit(reset=60.5)]),
    ("X-RateLimit-Reset: 2026-11-16T20:01:00", [ServerLimit(reset=60.0)]),
    ("X-RateLimit-Reset: Mon, 16 Nov 2026 20:01:00 GMT", [ServerLimit(reset=60.0)]),
    ("X-RateLimit-Reset: 2026-13-16T20:01:00Z", []),
    ("X-RateLimit-Reset: 1000000001", [ServerLimit(reset=0.0)]),
    ("X-RateLimit-Reset: 1000000000", []),
    ("X-RateLimit-Limit: 0\nX-RateLimit-Remaining: -1\nX-RateLimit-Reset: NaN", []),
    (
        "X-Rate-Limit-Limit: 900\nX-Rate-Limit-Remaining: 89\nX-Rate-Limit-Reset: 60",
        [ServerLimit(None, 900, None, 89, 60.0)],
    ),
    # Reddit
    (
        "X-Ratelimit-Used: 2\nX-Ratelimit-Remaining: 598.0\nX-Ratelimit-Reset: 333",
        [ServerLimit(None, None, None, 598, 333.0)],
    ),
    # GitHub
    (
        f"X-RateLimit-Limit: 5000\nX-RateLimit-Remaining: 4987\nX-RateLimit-Used: 13\nX-RateLimit-Resource: core\n"
        f"X-RateLimit-Reset: {EPOCH + 1800}",
        [ServerLimit("core", 5000, None, 4987, 1800.0)],
    ),
    # Discord
    (
        f"X-RateLimit-Limit: 5\nX-RateLimit-Remaining: 0\nX-RateLimit-Reset: {EPOCH + 65}.123\n"
        "X-RateLimit-Reset-After: 64.57\nX-RateLimit-Bucket: abcd1234",
        [ServerLimit("abcd1234", 5, None, 0, 64.57)],
    ),
    ("X-RateLimit-Global: true\nRetry-After: 65", [ServerLimit("global")]),
    ("X-RateLimit-Reset-After: soon\nX-RateLimit-Remaining: 3", [ServerLimit(remaining=3)]),
    # OpenAI, Groq, Azure
    (
        "x-ratelimit-limit-requests: 60\nx-ratelimit-limit-tokens: 150000\nx-ratelimit-remaining-requests: 59\n"
        "x-ratelimit-remaining-tokens: 149984\nx-ratelimit-reset-requests: 1s\nx-ratelimit-reset-tokens: 6m0s",
        [ServerLimit("requests", 60, 60.0, 59, 1.0), ServerLimit("tokens", 150_000, 60.0, 149_984, 360.0)],
    ),
    (
        "x-ratelimit-limit-requests: 200\nx-ratelimit-remaining-requests: 199\nx-ratelimit-reset-requests: 7m12s",
        [ServerLimit("requests", 200, 86_400.0, 199, 432.0)],
    ),
    ("x-ratelimit-reset-requests: 12ms\nx-ratelimit-reset-tokens: 2m59.5s",
     [ServerLimit("requests", reset=0.012), ServerLimit("tokens", reset=179.5)]),
    ("x-ratelimit-reset-tokens: 1d2h3m4s", [ServerLimit("tokens", reset=93_784.0)]),
    ("x-ratelimit-reset-tokens: 6m0", []),
    (
        "x-ratelimit-remaining-requests: -1\nx-ratelimit-limit-tokens: 10000\nx-ratelimit-remaining-tokens: 9000\n"
        "x-ratelimit-reset-tokens: 30",
        [ServerLimit("tokens", 10_000, 60.0, 9000, 30.0)],
    ),
    # Anthropic
    (
        "anthropic-ratelimit-requests-limit: 50\nanthropic-ratelimit-requests-remaining: 49\n"
        "anthropic-ratelimit-requests-reset: 2026-11-16T20:00:02Z\nanthropic-ratelimit-input-tokens-limit: 40000\n"
        "anthropic-ratelimit-input-tokens-remaining: 39000\n"
        "anthropic-ratelimit-input-tokens-reset: 2026-11-16T20:00:05Z\n"
        "anthropic-ratelimit-output-tokens-remaining: 8000",
        [
            ServerLimit("requests", 50, 60.0, 49, 2.0),
            ServerLimit("input-tokens", 40_000, 60.0, 39_000, 5.0),
            ServerLimit("output-tokens", remaining=8000),
        ],
    ),
    # Shopify
    ("X-Shopify-Shop-Api-Call-Limit: 32/40", [ServerLimit(limit=40, remaining=8)]),
    ("X-Shopify-Shop-Api-Call-Limit: 41/40", [ServerLimit(limit=40, remaining=0)]),
    ("X-Shopify-Shop-Api-Call-Limit: 40", []),
    # Stripe, nginx
    ("Stripe-Rate-Limited-Reason: global-rate", []),
    ("Server: nginx\nContent-Type: text/html", []),
]  # fmt: skip


@pytest.mark.parametrize(("lines", "limits"), LIMITS)
def test_a_ledger_of_limits(lines, limits):
    """Each limit with its name, amount, window, rest and reset, as far as its server tells them."""
    assert told(lines) == tuple(limits)


@pytest.mark.parametrize(
    ("status", "lines", "body", "refused", "seconds"),
    [
        (429, "", b"", True, None),
        (403, "", b"", False, None),
        (200, "X-RateLimit-Remaining: 0\nX-RateLimit-Reset: 30", b"", False, None),
        (429, "X-RateLimit-Remaining: 0\nX-RateLimit-Reset: 30", b"", True, 30.0),
        (429, "X-RateLimit-Reset: 30", b"", True, 30.0),
        (429, "X-RateLimit-Remaining: 5\nX-RateLimit-Reset: 30", b"", True, None),
        (429, "X-RateLimit-Remaining: 0\nX-RateLimit-Reset: 30\nRetry-After: 4", b"", True, 4.0),
        (429, 'RateLimit: "a";r=0;t=3, "b";r=0;t=9, "c";r=1;t=99', b"", True, 9.0),
        (403, "X-RateLimit-Remaining: 0\nX-RateLimit-Resource: core\nX-RateLimit-Reset: 30", b"", True, 30.0),
        (403, "X-RateLimit-Remaining: 1\nX-RateLimit-Resource: core\nX-RateLimit-Reset: 30", b"", False, None),
        (403, "", b'{"message": "You have exceeded a secondary rate limit."}', True, 60.0),
        (429, "", b'{"message": "You have exceeded a Secondary Rate limit."}', True, 60.0),
        (200, "", b"secondary rate", False, None),
        (403, "Retry-After: 7", b"secondary rate", True, 7.0),
        (403, "X-RateLimit-Remaining: 0\nX-RateLimit-Reset: 300", b"secondary rate", True, 300.0),
        (403, "X-RateLimit-Remaining: 9\nX-RateLimit-Reset: 300", b"secondary rate", True, 60.0),
        (503, "X-RateLimit-Remaining: 0\nX-RateLimit-Reset: 30", b"", False, None),
        (403, "", b" " * 5000 + b"secondary rate", False, None),
    ],
)
def test_a_ledger_of_refusals(status, lines, body, refused, seconds):
    """429, and GitHub's 403 without quota; the told wait counts, else the last reset of the limits without rest."""
    answer = read(status, fields(lines), NOW, body)
    assert (answer.refused, answer.retry_after) == (refused, seconds)


@pytest.mark.parametrize(
    ("lines", "wish"),
    [
        ("x-should-retry: true", True),
        ("X-Should-Retry: False", False),
        ("Stripe-Should-Retry: true", True),
        ("x-should-retry: maybe", None),
        ("grpc-retry-pushback-ms: -1", False),
        ("grpc-retry-pushback-ms: 0", None),
        ("Retry-After: 1", None),
    ],
)
def test_a_ledger_of_wishes(lines, wish):
    """Some servers ask for a retry or forbid it; a negative pushback of gRPC forbids it."""
    assert read(500, fields(lines), NOW).should_retry is wish


def retry_info(seconds: bytes, url: bytes = b"type.googleapis.com/google.rpc.RetryInfo") -> bytes:
    """A google.rpc.Status with a detail of this type, whose duration is given as protobuf."""

    def field(number: int, value: bytes) -> bytes:
        return bytes([number << 3 | 2, len(value)]) + value

    other = field(3, field(1, b"type.googleapis.com/google.rpc.DebugInfo") + field(2, b"\x12\x01x"))
    detail = field(1, url) + field(2, field(1, seconds))
    return b"\x08\x08" + field(2, b"slow down") + other + field(3, detail)


@pytest.mark.parametrize(
    ("status", "seconds"),
    [
        (retry_info(b"\x08\x05\x10\x80\xe5\x9a\x77"), 5.25),
        (retry_info(b"\x08\xac\x02"), 300.0),
        (retry_info(b"\x08\x0a"), 10.0),
        (retry_info(b"\x08\x20"), 32.0),
        (retry_info(b""), 0.0),
        (retry_info(b"\x08" + b"\xff" * 9 + b"\x01"), None),
        (retry_info(b"\x08\x05", b"type.googleapis.com/google.rpc.Help"), None),
        (retry_info(b"\x08\x05")[:-1], None),
        (retry_info(b"\x0b"), None),
        (b"\xff" * 40, None),
        (b"", None),
    ],
)
def test_a_ledger_of_retry_infos(status, seconds):
    """The delay of a google.rpc.RetryInfo among the details of a status; broken bytes tell none."""
    metadata = [(b"grpc-status-details-bin", status)]
    assert read(429, metadata, NOW).retry_after == seconds


def test_headers_may_have_any_form():
    """A mapping or pairs, str or bytes, in any case: the answer is the same."""
    expected = ServerResponse(429, True, 30.0, None, (ServerLimit(limit=100),))
    for headers in (
        {"Retry-After": "30", "X-RateLimit-Limit": "100"},
        {"retry-after": " 30 ", "x-ratelimit-limit": "100"},
        {b"RETRY-AFTER": b"30", b"X-RATELIMIT-LIMIT": b"100"},
        [(b"retry-after", b"30"), (b"x-ratelimit-limit", b"100")],
        iter([("Retry-After", "30"), ("Retry-After", "60"), ("X-Ratelimit-Limit", "100")]),
    ):
        assert read(429, headers, NOW) == expected


@pytest.mark.parametrize("codec", [ASGI, WSGI])
@pytest.mark.parametrize("style", ["draft-11", "draft-6", "x-ratelimit", "x-ratelimit-epoch"])
def test_the_fields_of_our_own_servers_are_read(codec, style):
    """Every style that the web edges send tells what is left and when; a refusal tells its wait."""
    clock = ManualClock(NOW / SECOND)
    limiter = Limiter("10/minute as api", clock=clock)
    write = headers_for((style,), codec, clock)(limiter.limits)
    window, name = (60.0, "api") if style == "draft-11" else (None, None)
    accepted = read(200, write(limiter.hit("k", 4)), NOW)
    assert accepted == ServerResponse(200, told=(ServerLimit(name, 10, window, 6, 24.0),))
    refused = read(429, write(limiter.hit("k", 7)), NOW)
    assert refused == ServerResponse(429, True, 6.0, None, (ServerLimit(name, 10, window, 6, 24.0),))


def test_header_fields_of_httpx_are_read_line_by_line():
    """Of a field that is told twice, the first line counts, as for every other library; httpx would join them."""
    import httpx2

    headers = httpx2.Headers([("Retry-After", "3"), ("retry-after", "9"), ("RateLimit", '"x";r=0;t=3')])
    answer = read(429, headers, 0)
    assert (answer.retry_after, [(each.name, each.remaining) for each in answer.told]) == (3.0, [("x", 0)])
