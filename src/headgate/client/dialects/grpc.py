"""gRPC: `grpc-retry-pushback-ms`, or a `google.rpc.RetryInfo` in `grpc-status-details-bin`.

The metadata is as gRPC libraries give it: the value of a `-bin` field is bytes, decoded from base64.
"""

from __future__ import annotations

from typing import Final

from headgate.client.dialects.numbers import LONGEST, number
from headgate.client.dialects.protobuf import Malformed, last_varint, messages
from headgate.client.dialects.response import Response
from headgate.client.server_limits import ServerLimit

PUSHBACK: Final = "grpc-retry-pushback-ms"
_RETRY_INFO: Final = b"/google.rpc.RetryInfo"


def _delay(status: bytes) -> float | None:
    """Return the delay in the RetryInfo of a Status: Status.details 3, Any 1 and 2, RetryInfo 1, Duration 1 and 2."""
    for detail in messages(status, 3):
        if not any(url.endswith(_RETRY_INFO) for url in messages(detail, 1)):
            continue
        for info in messages(detail, 2):
            for duration in messages(info, 1):  # a number below 0 is huge when it is read without its sign
                return last_varint(duration, 1) + last_varint(duration, 2) / 1e9
    return None


def read(response: Response) -> list[ServerLimit]:
    """Return the wait; a negative pushback forbids retries and tells none."""
    pushback = response.get(PUSHBACK)
    if pushback:
        found = number(pushback)
        wait = None if found is None else found / 1000
    else:
        try:
            wait = _delay(response.get("grpc-status-details-bin").encode("latin-1"))
        except (Malformed, UnicodeEncodeError):
            wait = None
    return [] if wait is None or wait > LONGEST else [ServerLimit(retry_after=wait)]
