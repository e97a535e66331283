"""gRPC: admissions, refusals and keys of calls; all four kinds of methods, on real servers."""

from __future__ import annotations

import functools
import json
import logging
import threading
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

pytest.importorskip("grpc")
import grpc
from grpc import StatusCode

from headgate import HeadgateError, MemoryStore
from headgate.testing import ManualClock, disabled, frozen, reset_all
from headgate.web.grpc import exempt, limited
from headgate.web.refusal import Refusal
from tests.support.edges import LATER
from tests.support.grpc_servers import KINDS, TWO, Answer, AsyncEcho, Echo, each_sort, ended, every_server, serving
from tests.support.stores import away as store_away

pytestmark = pytest.mark.engineless


@every_server
@pytest.mark.parametrize("method", KINDS)
def test_a_call_says_what_is_left_and_a_refusal_has_everything(kind, method):
    """All of it in trailing metadata, in lower case; the handler is not called for a refusal."""
    with serving(kind, TWO) as server:
        first = server.ask(method, b"hi")
        assert first.code is StatusCode.OK and first.responses == [b"hi"] * (2 if method == "Stream" else 1)
        assert first.trailing == {"ratelimit-policy": '"api";q=2;w=60', "ratelimit": '"api";r=1;t=30'}
        assert server.codes(1, method, b"hi") == ["OK"]
        refused = server.ask(method, b"hi")
        assert refused == Answer(
            StatusCode.RESOURCE_EXHAUSTED,
            "The quota is used up. Retry after 30 s.",
            {
                "ratelimit-policy": '"api";q=2;w=60', "ratelimit": '"api";r=0;t=60', "retry-after": "30",
                "grpc-retry-pushback-ms": "30000",
            },
            [],
        )  # fmt: skip
        assert len(server.echo.calls) == 2


@every_server
@pytest.mark.parametrize("method", ["Collect", "Chat"])
def test_a_stream_is_refused_before_its_first_message(kind, method):
    """While the client has not sent anything yet."""
    silent = threading.Event()

    def messages() -> Iterator[bytes]:
        silent.wait(10)
        yield b"late"

    with serving(kind, TWO) as server:
        server.codes(2)
        try:
            assert server.ask(method, messages()).code is StatusCode.RESOURCE_EXHAUSTED
        finally:
            silent.set()


def test_the_wait_is_told_in_milliseconds_and_never_too_short():
    """A third of a second is 334 ms; where no wait helps it is -1, and no more than the rule discloses."""
    rules: list[dict[str, Any]] = [
        {"match": {"path": "/echo.Echo/Unary"}, "limits": "3/second burst 1"},
        {"match": {"path": "/echo.Echo/Stream"}, "limits": "2/minute", "cost": 5},
        {"match": {"path": "/echo.Echo/Collect"}, "limits": "1/minute", "disclose": "retry"},
        {"match": {"path": "/echo.Echo/Chat"}, "limits": "1/minute", "disclose": "none"},
    ]
    with serving(policy={"rules": [{"key": "ip", **rule} for rule in rules]}) as server:
        server.codes(1), server.codes(1, "Collect"), server.codes(1, "Chat")
        told = {method: server.ask(method) for method in KINDS}
        assert {answer.code for answer in told.values()} == {StatusCode.RESOURCE_EXHAUSTED}
        assert told["Unary"].trailing["grpc-retry-pushback-ms"] == "334"
        assert told["Unary"].trailing["retry-after"] == "1"
        assert (
            told["Stream"].trailing["grpc-retry-pushback-ms"] == "-1" and "retry-after" not in told["Stream"].trailing
        )
        assert told["Collect"].trailing == {"retry-after": "60", "grpc-retry-pushback-ms": "60000"}
        assert told["Chat"].trailing == {} and told["Chat"].details == "The quota is used up. Try again later."


def test_a_crowd_is_told_to_come_back_one_after_the_other():
    """Nobody before the limit has room, and not all of them at once; one client alone is told its exact wait."""
    rule = {"name": "api", "key": {"header": "x-user"}, "limits": "1/minute"}
    with serving(policy={"rules": [rule]}) as server:
        users = [[("x-user", str(number))] for number in range(60)]
        for user in users:
            server.ask(metadata=user)
        waits = [int(server.ask(metadata=user).trailing["grpc-retry-pushback-ms"]) for user in users]
        assert min(waits) == 60_000 and len(set(waits)) > 1
    with serving(policy=TWO) as server:
        server.codes(2)
        assert {server.ask().trailing["grpc-retry-pushback-ms"] for _ in range(60)} == {"30000"}


@each_sort
def test_the_code_of_a_refusal_follows_its_reason(kind):
    """On a list: PERMISSION_DENIED; no answer from the store: UNAVAILABLE, or counted here. No wait is told."""
    rule = {"key": "ip", "limits": "1/minute", "on_error": "deny"}
    policy = {"rules": [rule], "deny": {"header": {"x-bad": True}}}
    with serving(kind, policy, store=store_away()) as server:
        denied, away = server.ask(metadata=[("x-bad", "1")]), server.ask()
        assert denied[:3] == (StatusCode.PERMISSION_DENIED, "Forbidden. This client may not pass.", {})
        assert (away.code, away.trailing) == (StatusCode.UNAVAILABLE, {})
    with serving(kind, default="1/minute", store=store_away()) as server:
        assert server.codes(2) == ["OK", "RESOURCE_EXHAUSTED"]


def test_a_refusal_in_the_apps_own_words():
    """The body is what the client reads as details."""
    with serving(default="1/minute", refusal=Refusal("Slow down")) as server:
        assert [server.ask().details for _ in range(2)] == ["", "Slow down"]


def test_policies_know_methods_by_their_path():
    """A service by a star, one by its name; every call is a POST. What is not there stays unimplemented."""
    rules = [
        {"match": {"path": "/echo.Echo/*", "method": "POST"}, "key": ["ip", "path"], "limits": "2/minute"},
        {"match": {"route": "/echo.Echo/Stream"}, "key": "ip", "limits": "1/minute"},
        {"match": {"path": "/other.Echo/*"}, "key": "ip", "limits": "1/minute"},
    ]
    with serving(policy={"rules": rules}) as server:
        assert server.codes(3, "Unary") == ["OK", "OK", "RESOURCE_EXHAUSTED"]
        assert server.codes(2, "Stream") == ["OK", "RESOURCE_EXHAUSTED"]
        assert server.codes(3, "Nothing") == server.codes(3, "Unary", service="other.Echo") == ["UNIMPLEMENTED"] * 3


class Marked(Echo):
    """With limits of its own."""

    @limited("1/minute", key=lambda rpc: rpc.message)
    @limited("3/minute", key="everyone", name="all")
    def Unary(self, request: bytes, context: Any) -> bytes:
        return request

    @exempt
    def Stream(self, request: bytes, context: Any) -> Iterator[bytes]:
        yield request


class AsyncMarked(AsyncEcho):
    """The same in an event loop."""

    @limited("1/minute", key=lambda rpc: rpc.message)
    @limited("3/minute", key="everyone", name="all")
    async def Unary(self, request: bytes, context: Any) -> bytes:  # type: ignore[override]
        return request

    @exempt
    async def Stream(self, request: bytes, context: Any) -> AsyncIterator[bytes]:  # type: ignore[override]
        yield request


@each_sort
def test_methods_have_limits_of_their_own_or_the_default(kind):
    """Several are one decision, charged all or none; each method without its own has a count by the default."""
    echo = Marked() if kind == "threads" else AsyncMarked()
    with serving(kind, default="2/minute", echo=echo) as server:
        asked = [server.ask("Unary", name).code.name for name in (b"a", b"a", b"a", b"b", b"c", b"d")]
        assert asked == ["OK"] + ["RESOURCE_EXHAUSTED"] * 2 + ["OK"] * 2 + ["RESOURCE_EXHAUSTED"]
        assert server.codes(3, "Stream") == ["OK"] * 3
        assert server.codes(3, "Collect") == server.codes(3, "Chat") == ["OK", "OK", "RESOURCE_EXHAUSTED"]


def test_what_a_methods_limit_refuses_costs_nothing_in_the_policy():
    """Both tell what is left; the refusal only of the limit that refused."""
    echo: Any = Echo()
    echo.Collect = limited("1/minute")(echo.Collect)
    echo.Chat = functools.partial(limited("1/minute")(echo.Chat))
    policy = {"rules": [{"name": "api", "key": "ip", "limits": "4/minute"}]}
    with serving(policy=policy, echo=echo) as server:
        first, second = server.ask("Collect"), server.ask("Collect")
        assert first.trailing["ratelimit"] == '"api";r=3;t=15, "echo.Echo-Collect";r=0;t=60'
        assert second.trailing["ratelimit"] == '"echo.Echo-Collect";r=0;t=60'
        assert server.codes(2, "Chat") == ["OK", "RESOURCE_EXHAUSTED"]
        assert server.codes(3) == ["OK", "OK", "RESOURCE_EXHAUSTED"]


@every_server
def test_a_shadow_looks_like_any_other_answer(kind):
    """Its body is a message, of a stream only where there is one; of messages, one too many is left out."""
    rules: list[dict[str, Any]] = [
        {"match": {"path": "/echo.Echo/Unary"}},
        {"match": {"path": "/echo.Echo/Stream"}, "act": {"shadow": {"body": "x"}}},
        {"match": {"path": "/echo.Echo/Collect"}, "act": {"shadow": {"status": 404}}},
        {"match": {"path": "/echo.Echo/Chat"}},
        {"match": {"path": "/echo.Echo/Chat", "method": "MESSAGE"}},
    ]
    shadow = {"key": "ip", "limits": "1/minute", "act": "shadow"}
    with serving(kind, {"rules": [{**shadow, **rule} for rule in rules]}) as server:
        assert server.codes(1, "Unary") == server.codes(1, "Stream") == server.codes(1, "Collect") == ["OK"]
        chat = server.ask("Chat", b"a", b"b", b"c")
        assert (chat.code, chat.responses) == (StatusCode.OK, [b"a"])
        assert server.ask("Unary", b"a") == Answer(StatusCode.OK, "", {}, [b""])
        assert server.ask("Stream", b"a") == Answer(StatusCode.OK, "", {}, [b"x"])
        assert server.ask("Collect", b"a") == Answer(StatusCode.NOT_FOUND, "", {}, [])
        assert server.ask("Chat", b"a") == Answer(StatusCode.OK, "", {}, [])


def test_observe_lets_pass(caplog):
    """The log says what would have happened."""
    caplog.set_level(logging.INFO, "headgate.policy")
    with serving(policy={"rules": [{"key": "ip", "limits": "1/minute", "act": "observe"}]}) as server:
        assert server.codes(2) == ["OK", "OK"]
    assert "would refuse" in caplog.text


@every_server
def test_a_delay_holds_the_call_and_nobody_else(kind):
    """Five a second: the third in a row waits 0.4 seconds, the fourth is one too many; others answer meanwhile."""
    rule = {"match": {"path": "/echo.Echo/Unary"}, "key": "ip", "limits": "5/second", "act": {"delay": {"hold": 3}}}
    with serving(kind, {"rules": [rule]}) as server:
        start = time.monotonic()
        calls = [server.begin("Unary", b"hi") for _ in range(4)]
        assert server.codes(1, "Chat") == ["OK"]
        assert not all(call.done() for call in calls)
        assert sorted(ended(call).code.name for call in calls) == ["OK"] * 3 + ["RESOURCE_EXHAUSTED"]
        assert 0.4 <= time.monotonic() - start < 5


def retrying(target: str) -> grpc.Channel:
    """A channel that tries again when it is told RESOURCE_EXHAUSTED, at first after a minute."""
    policy = {
        "maxAttempts": 3, "initialBackoff": "60s", "maxBackoff": "60s", "backoffMultiplier": 1,
        "retryableStatusCodes": ["RESOURCE_EXHAUSTED"],
    }  # fmt: skip
    config = json.dumps({"methodConfig": [{"name": [{"service": "echo.Echo"}], "retryPolicy": policy}]})
    return grpc.insecure_channel(target, (("grpc.service_config", config), ("grpc.enable_retries", 1)))


@each_sort
def test_a_client_with_a_retry_policy_comes_back_when_told_to(kind):
    """After 200 ms and not after its own minute; it does not where no wait helps."""
    rules = [
        {"match": {"path": "/echo.Echo/Unary"}, "key": "ip", "limits": "5/second burst 1"},
        {"match": {"path": "/echo.Echo/Stream"}, "key": "ip", "limits": "5/second", "cost": 9},
    ]
    tried: list[str] = []
    clock = ManualClock(LATER)

    def plan(view: Any) -> None:
        tried.append(view.path)
        if len(tried) == 3:
            clock.advance(0.2)

    options = {"store": MemoryStore(clock=clock), "plan": plan}
    with serving(kind, {"rules": rules}, **options) as server, retrying(server.target) as channel:
        ask: Any = channel.unary_unary("/echo.Echo/Unary")
        assert ask(b"one", timeout=10) == b"one"
        start = time.monotonic()
        assert ask(b"two", timeout=10) == b"two"
        assert 0.15 < time.monotonic() - start < 8
        assert len(tried) == 3
        call: Any = channel.unary_stream("/echo.Echo/Stream")(b"", timeout=10)
        assert ended(call, "Stream").code is StatusCode.RESOURCE_EXHAUSTED
        assert len(tried) == 4


def test_tools_for_testing_work_on_the_runtime():
    """Time that stands still, limits that are off, counts that are forgotten."""
    with serving(default="1/minute") as server:
        runtime = server.interceptor
        with frozen(runtime) as clock:
            assert server.codes(2) == ["OK", "RESOURCE_EXHAUSTED"]
            clock.advance(60)
            assert server.codes(2) == ["OK", "RESOURCE_EXHAUSTED"]
            reset_all(runtime)
            assert server.codes(2) == ["OK", "RESOURCE_EXHAUSTED"]
        with disabled(runtime):
            assert server.codes(3) == ["OK"] * 3


def test_mistakes_are_told(caplog):
    """In the limit itself where it is written; a limit of messages on a method that has one, when it is called."""
    with pytest.raises(HeadgateError, match="fortnight"):
        limited("1/fortnight")
    echo: Any = Echo()
    echo.Unary = limited("1/minute", messages=True)(echo.Unary)
    with serving(echo=echo) as server:
        assert server.codes(1) == ["UNKNOWN"]
    assert "/echo.Echo/Unary receives a single message" in caplog.text


@every_server
def test_metadata_that_is_said_twice_is_an_invalid_argument(kind):
    """gRPC has each pair, an app reads the first or the last; `missing: deny` is unauthenticated, and says of what."""
    policy = {"rules": [{"name": "api", "key": {"header": "x-key"}, "missing": "deny", "limits": "1/minute"}]}
    with serving(kind, policy) as server:
        twice = server.ask(metadata=[("x-key", "a"), ("x-key", "b")])
        said = "Bad Request. The header x-key was sent more than once, with different values."
        assert twice == Answer(StatusCode.INVALID_ARGUMENT, said, {}, [])
        missing = server.ask()
        said = "Unauthorized. The header x-key is missing."
        assert missing == Answer(StatusCode.UNAUTHENTICATED, said, {"www-authenticate": "APIKey"}, [])
        pairs = ([("x-key", "a"), ("x-key", "a")], [("x-key", "a")], [("x-key", "b")])
        assert [server.ask(metadata=each).code.name for each in pairs] == ["OK", "RESOURCE_EXHAUSTED", "OK"]
