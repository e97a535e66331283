"""`POST /json`: proto3 JSON, 200 or 429."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.edge.envoy.support import Service

FILE = "domain: d\ndescriptors:\n  - {key: k, rate_limit: {unit: minute, requests_per_unit: 1, name: one}}\n"
ASKED = b'{"domain": "d", "descriptors": [{"entries": [{"key": "k", "value": "v"}]}], "unknown": 1}'


def test_the_answer_in_json(tmp_path: Path) -> None:
    """Field names and values are those of the reference; a refusal is 429 and says when to retry."""
    service = Service(tmp_path, FILE)
    service.clock.set(600.0)
    answers = [asyncio.run(service.limits.json(ASKED)) for _ in range(2)]
    assert [(status, fields, json.loads(body)) for status, fields, body in answers] == [
        (
            200,
            [(b"content-type", b"application/json")],
            {
                "overallCode": "OK",
                "statuses": [
                    {
                        "code": "OK",
                        "currentLimit": {"name": "one", "requestsPerUnit": 1, "unit": "MINUTE"},
                        "durationUntilReset": "60s",
                    }
                ],
            },
        ),
        (
            429,
            [(b"content-type", b"application/json"), (b"retry-after", b"60")],
            {
                "overallCode": "OVER_LIMIT",
                "statuses": [
                    {
                        "code": "OVER_LIMIT",
                        "currentLimit": {"name": "one", "requestsPerUnit": 1, "unit": "MINUTE"},
                        "durationUntilReset": "60s",
                    }
                ],
                "responseHeadersToAdd": [{"key": "retry-after", "value": "60"}],
            },
        ),
    ]


@pytest.mark.parametrize(
    "body",
    [b"", b"[]", b"{", b"\xff", b"{}", b'{"domain": 1}', b'{"domain": "d"}', b'{"descriptors": [{"entries": 1}]}',
     b'{"a":' * 3000, b'{"domain": "d", "descriptors": [{"limit": {"requestsPerUnit": 1, "unit": "FORTNIGHT"}}]}'],
)  # fmt: skip
def test_a_body_that_is_none_is_400(tmp_path: Path, body: bytes) -> None:
    """A body that is no request, or one without domain or descriptors, is told so."""
    assert asyncio.run(Service(tmp_path, FILE).limits.json(body))[0] == 400


@settings(max_examples=100, deadline=None)
@given(
    body=st.binary(max_size=60)
    | st.text(alphabet='{}[]":,descriptorsdomainentrieskeyvalue 01', max_size=80).map(str.encode)
)
def test_any_body_is_answered(tmp_path_factory: pytest.TempPathFactory, body: bytes) -> None:
    """No body makes the service fail."""
    service = Service(tmp_path_factory.mktemp("d"), FILE)
    assert asyncio.run(service.limits.json(body))[0] in (200, 400, 429)
