"""The gRPC service over HTTP/2: `ShouldRateLimit`, and the health check that proxies use."""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Final

from headgate.edge.envoy.blocks import Fields
from headgate.edge.envoy.frames import MOST_STREAMS
from headgate.edge.envoy.limits import EnvoyLimits
from headgate.edge.envoy.messages import PACKAGE, request_from_bytes
from headgate.edge.envoy.sending import Response
from headgate.errors import HeadgateError
from headgate.stores import AsyncStore, Store
from headgate.wording import log_of

SHOULD_RATE_LIMIT: Final = f"/{PACKAGE}.RateLimitService/ShouldRateLimit".encode()
HEALTH: Final = b"/grpc.health.v1.Health/Check"
TOKEN: Final = b"x-headgate-token"
INVALID_ARGUMENT, UNIMPLEMENTED, INTERNAL, UNAUTHENTICATED = 3, 12, 13, 16
SERVING, NOT_SERVING = b"\x08\x01", b"\x08\x02"
MOST_PENDING: Final = 4 * MOST_STREAMS
"""The most answers of a process that wait for a store."""
Respond = Callable[[Response], None]
log = log_of("headgate.edge")


def _field(name: bytes, value: bytes) -> bytes:
    """Return a header field that neither side puts into its table."""
    return b"\0%c%b%c%b" % (len(name), name, len(value), value)


_HEAD: Final = b"\x88" + _field(b"content-type", b"application/grpc")  # 0x88 is `:status: 200`
_DONE: Final = _field(b"grpc-status", b"0")
_NOT_GRPC: Final = _field(b":status", b"415")


def _message(body: bytes) -> Response:
    return Response(_HEAD, b"\0" + len(body).to_bytes(4, "big") + body, _DONE)


def _failure(code: int, text: str) -> Response:
    """Return a response that has a status only; the text is plain ASCII of at most 100 characters."""
    plain = "".join(letter for letter in text if " " <= letter <= "~" and letter != "%")[:100].encode()
    return Response(_HEAD + _field(b"grpc-status", b"%d" % code) + _field(b"grpc-message", plain))


class Calls:
    """Answers calls. A store in memory answers at once; others are awaited in a task."""

    def __init__(self, limits: EnvoyLimits, store: Store, tokens: Sequence[bytes] = ()) -> None:
        self._limits = limits
        self._tokens = tokens
        self._awaits = isinstance(store, AsyncStore)
        self._tasks: set[asyncio.Task[None]] = set()
        self.drains = False

    def __call__(self, fields: Fields, body: bytes, respond: Respond) -> None:
        """Answer one call whose fields are not refused."""
        if len(body) < 5 or int.from_bytes(body[1:5], "big") != len(body) - 5:
            respond(_failure(INVALID_ARGUMENT, "a call has one message"))
        elif body[0]:
            respond(_failure(UNIMPLEMENTED, "messages must not be compressed"))
        elif fields[b":path"] == HEALTH:
            respond(_message(NOT_SERVING if self.drains else SERVING))
        elif not self._awaits:
            _run_at_once(self._answer(body, respond))
        elif len(self._tasks) >= MOST_PENDING:
            respond(_failure(INTERNAL, "too many calls wait for the store"))
        else:
            task = asyncio.get_running_loop().create_task(self._answer(body, respond))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def refusal(self, fields: Fields) -> Response | None:
        """Return the response to a call that is none, or has no token: its body is not kept."""
        if not fields.get(b"content-type", b"").startswith(b"application/grpc"):
            return Response(_NOT_GRPC)
        if fields.get(b":path") not in (SHOULD_RATE_LIMIT, HEALTH):
            return _failure(UNIMPLEMENTED, "this service has ShouldRateLimit only")
        if self._tokens and fields[b":path"] != HEALTH:
            given = fields.get(TOKEN, b"")
            if not any(hmac.compare_digest(given, token) for token in self._tokens):
                return _failure(UNAUTHENTICATED, "send the token of the service as x-headgate-token")
        return None

    async def _answer(self, body: bytes, respond: Respond) -> None:
        try:
            _, response = await self._limits.answer(request_from_bytes(body[5:]))
        except (HeadgateError, ValueError) as error:
            respond(_failure(INVALID_ARGUMENT, str(error)))
        except Exception:
            log.exception("a call failed")
            respond(_failure(INTERNAL, "the service failed"))
        else:
            respond(_message(response.SerializeToString()))


def _run_at_once(work: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine that waits for nothing."""
    try:
        work.send(None)
    except StopIteration:
        return
    work.close()
    raise RuntimeError("a store that need not be awaited has waited")
