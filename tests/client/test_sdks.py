"""The SDKs of language models through a budget, against a real server that counts, streams and refuses."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any, ClassVar

import httpx2
import pytest

from headgate.client import Budget, chat
from headgate.client.httpx import Transport
from headgate.client.usage import Chat
from tests.support.model_server import ModelServer
from tests.support.serving import in_thread
from tests.support.transports.httpx import PLAIN

pytestmark = pytest.mark.engineless

LIMITS = "6000/minute as requests; 600000/minute as tokens"


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with in_thread(ModelServer()) as served:
        yield served


def transport(budget: Budget, inner: Any) -> Transport:
    """Return a transport of a budget that sends by this class of httpx2."""
    return Transport(budget, inner(verify=PLAIN))


class OpenAI:
    """OpenAI's SDK, awaited or not."""

    name = "openai"

    @staticmethod
    def library() -> Any:
        """The SDK, which takes a second to import: only the process that runs these tests does."""
        return pytest.importorskip("openai")

    def __init__(self, server: ModelServer, budget: Budget, max_retries: int = 0) -> None:
        self._options = {"base_url": f"{server.url}/v1", "api_key": "k", "max_retries": max_retries}
        self._budget = budget

    def ask(self, content: str, **options: Any) -> Any:
        with httpx2.Client(transport=transport(self._budget, httpx2.HTTPTransport)) as http:
            client = self.library().OpenAI(http_client=http, **self._options)
            answer = client.chat.completions.create(
                model="m", messages=[{"role": "user", "content": content}], **options
            )
            return list(answer) if options.get("stream") else answer

    async def ask_awaited(self, content: str, **options: Any) -> Any:
        async with httpx2.AsyncClient(transport=transport(self._budget, httpx2.AsyncHTTPTransport)) as http:
            client = self.library().AsyncOpenAI(http_client=http, **self._options)
            answer = await client.chat.completions.create(
                model="m", messages=[{"role": "user", "content": content}], **options
            )
            return [event async for event in answer] if options.get("stream") else answer

    stream: ClassVar[dict[str, Any]] = {"stream": True, "stream_options": {"include_usage": True}}


class Anthropic:
    """Anthropic's SDK, awaited or not."""

    name = "anthropic"

    @staticmethod
    def library() -> Any:
        """The SDK, which takes two seconds to import."""
        return pytest.importorskip("anthropic")

    def __init__(self, server: ModelServer, budget: Budget, max_retries: int = 0) -> None:
        self._options = {"base_url": server.url, "api_key": "k", "max_retries": max_retries}
        self._budget = budget

    def ask(self, content: str, **options: Any) -> Any:
        with httpx2.Client(transport=transport(self._budget, httpx2.HTTPTransport)) as http:
            client = self.library().Anthropic(http_client=http, **self._options)
            answer = client.messages.create(
                model="m", max_tokens=500, messages=[{"role": "user", "content": content}], **options
            )
            return list(answer) if options.get("stream") else answer

    async def ask_awaited(self, content: str, **options: Any) -> Any:
        async with httpx2.AsyncClient(transport=transport(self._budget, httpx2.AsyncHTTPTransport)) as http:
            client = self.library().AsyncAnthropic(http_client=http, **self._options)
            answer = await client.messages.create(
                model="m", max_tokens=500, messages=[{"role": "user", "content": content}], **options
            )
            return [event async for event in answer] if options.get("stream") else answer

    stream: ClassVar[dict[str, Any]] = {"stream": True}


SDKS = pytest.mark.parametrize("sdk", [OpenAI, Anthropic], ids=lambda sdk: sdk.name)
WAYS = pytest.mark.parametrize("awaited", [False, True], ids=["threads", "loops"])


def ask(sdk: Any, awaited: bool, content: str, **options: Any) -> Any:
    return asyncio.run(sdk.ask_awaited(content, **options)) if awaited else sdk.ask(content, **options)


def budget_of(**options: Any) -> Budget:
    return Budget(LIMITS, key="model", usage=Chat(), **options)


@SDKS
@WAYS
@pytest.mark.parametrize("zipped", [False, True], ids=["plain", "gzip"])
def test_the_report_equals_the_server_s_count_to_the_token(server, sdk, awaited, zipped):
    """Whole answers and streams, compressed or not: the units of the report are what the server has counted."""
    budget = budget_of()
    client = sdk(server, budget)
    server.zipped = zipped
    for tokens in (3, 40, 200):
        ask(client, awaited, f"please answer {tokens}")
        ask(client, awaited, f"please answer {tokens}, bit by bit", **sdk.stream)
    units = budget.report().units
    assert {name: units[name] for name in server.used} == dict(server.used)
    assert budget.report().sent == 6


@SDKS
def test_a_stream_passes_untouched(server, sdk):
    """The SDK reads every event of a stream: its words are those that the server sent."""
    events = sdk(server, budget_of()).ask("answer 25", **sdk.stream)
    words = str([event.model_dump_json() for event in events]).count("word ")
    assert words == 25


@SDKS
@WAYS
def test_a_refusal_is_waited_out_here(server, sdk, awaited):
    """After a 429 the SDK gets the answer, and has not retried by itself."""
    server.refusals = [(429, {"Retry-After-Ms": "40"}), (429, {"Retry-After-Ms": "40"})]
    budget = budget_of()
    answer = ask(sdk(server, budget), awaited, "answer 5")
    assert "word" in answer.model_dump_json()
    assert [request["x-stainless-retry-count"] for request in server.requests] == ["0", "0", "0"]
    report = budget.report()
    assert (report.sent, report.retried, report.refused_there) == (3, 2, 2)


@SDKS
def test_an_sdk_that_retries_too_is_told_once(server, sdk, caplog):
    """Retries inside retries multiply: a request that the SDK repeats is not repeated here; the log tells the fix."""
    server.refusals = [(503, {"x-should-retry": "true", "retry-after-ms": "1"})] * 6
    budget = budget_of()
    client = sdk(server, budget, max_retries=2)
    with pytest.raises(Exception, match="slow down"):
        client.ask("answer 5")
    counts = [request["x-stainless-retry-count"] for request in server.requests]
    assert counts.count("1") == counts.count("2") == 1
    assert caplog.text.count("max_retries=0") == 1


@SDKS
@WAYS
def test_a_refusal_of_the_budget_is_a_response_for_sdks(server, sdk, awaited):
    """With `refusal="response"` the SDK raises its own error, and does not try again."""
    server.refusals = [(429, {"Retry-After": "3600"})]
    budget = budget_of(refusal="response")
    with pytest.raises(sdk.library().RateLimitError):
        ask(sdk(server, budget), awaited, "answer 5")
    sent = len(server.requests)
    with pytest.raises(sdk.library().RateLimitError) as refused:
        ask(sdk(server, budget, max_retries=2), awaited, "answer 5")
    assert refused.value.response.headers["headgate-refused"] == "local"
    assert int(refused.value.response.headers["retry-after"]) > 3500
    assert len(server.requests) == sent


@SDKS
def test_tokens_of_a_refused_attempt_come_back(server, sdk):
    """A refused request has used nothing: only its answer is in the report and in the budget."""
    server.refusals = [(429, {"Retry-After-Ms": "10"})]
    budget = budget_of()
    sdk(server, budget).ask("answer 100")
    assert budget.report().units["tokens"] == server.used["tokens"]
    assert charged(budget) == pytest.approx(server.used["tokens"], abs=300)


def charged(budget: Budget) -> int:
    """The tokens that the store has counted and not yet forgotten."""
    from headgate import Limiter
    from headgate.client.pacing import paced

    pace = next(paced(limit, 0.02) for limit in budget.limits if limit.name == "tokens")
    left = Limiter(pace, store=budget.store, namespace="budget").peek("127.0.0.1", 0).remaining
    return pace.burst - left


def test_a_stream_without_usage_keeps_its_reservation(server):
    """OpenAI tells the usage of a stream only if asked: without it, nothing is settled and nothing is invented."""
    budget = budget_of()
    OpenAI(server, budget).ask("answer 20", stream=True)
    assert budget.report().units == {}


@WAYS
def test_a_stream_that_is_cut_short_keeps_its_reservation(server, awaited):
    """The server counted what it sent; the budget keeps what was reserved, and the SDK raises its own error."""
    budget = budget_of()
    with pytest.raises(Exception, match="(?i)connection") as cut:
        ask(OpenAI(server, budget), awaited, "answer 30 cut 5", **OpenAI.stream)
    assert "headgate" not in type(cut.value).__module__
    assert budget.report().units == {}


def test_limits_of_a_provider_are_learned(server):
    """OpenAI's fields tell requests and tokens: both are adopted by a budget that published nothing."""
    server.limits = {
        "x-ratelimit-limit-requests": "500",
        "x-ratelimit-remaining-requests": "499",
        "x-ratelimit-reset-requests": "120ms",
        "x-ratelimit-limit-tokens": "200000",
        "x-ratelimit-remaining-tokens": "199900",
        "x-ratelimit-reset-tokens": "30ms",
    }
    budget = Budget(key="host", usage=chat)
    OpenAI(server, budget).ask("answer 5")
    (learned,) = budget.report().learned.values()
    assert sorted(str(limit) for limit in learned) == ["200000/minute as tokens", "500/minute as requests"]


def test_models_have_budgets_of_their_own(server):
    """`key="model"` reads the model in the body: the key is the host and the model."""
    keys: list[str] = []
    budget = Budget("1/hour", key="model", usage=Chat(), on_event=lambda event: keys.append(event.key), refusal="raise")
    server.refusals = [(429, {"Retry-After": "7200"})]
    with pytest.raises(OpenAI.library().RateLimitError):
        OpenAI(server, budget).ask("answer 5")
    assert set(keys) == {f"{server.url.removeprefix('http://')}:m"}
