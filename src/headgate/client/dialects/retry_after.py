"""`Retry-After` of RFC 9110: seconds, which some servers send with a fraction, or an HTTP date."""

from __future__ import annotations

from headgate.client.dialects.instants import http_date
from headgate.client.dialects.numbers import seconds
from headgate.client.dialects.response import Response
from headgate.client.server_limits import ServerLimit


def read(response: Response) -> list[ServerLimit]:
    """Return the wait, if the response has a valid `Retry-After`."""
    text = response.get("retry-after")
    found = seconds(text.partition(",")[0])  # of two lines, which libraries join by a comma, the first counts
    if found is None:
        found = response.until(http_date(text))
    return [] if found is None else [ServerLimit(retry_after=found)]
