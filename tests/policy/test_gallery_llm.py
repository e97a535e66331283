"""The gallery's policy for language models: costs by tokens, and streams."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.policy.test_gallery import Reply, Site

pytestmark = pytest.mark.engineless
pytest.importorskip("yaml")


def test_llm():
    """Requests and tokens are two budgets; tokens are corrected by what the model says it used."""
    site = Site("llm.yaml")
    path = "/v1/chat/completions"
    assert site.ask("POST", path).status == 401
    site.headers = {"X-Tokens-Used": "3000"}
    assert site.statuses(4, "POST", path, authorization="Bearer a") == [200] * 4
    refused = site.ask("POST", path, authorization="Bearer a")
    assert (refused.status, refused.violated, refused.retry_after) == (429, ["tokens.1"], 14)
    site.headers = {"X-Tokens-Used": "10"}
    few = [site.ask("POST", path, authorization="Bearer b") for _ in range(61)]
    assert [reply.status for reply in few] == [200] * 60 + [429]
    assert few[-1].violated == ["requests"]
    site.status = 500
    assert site.statuses(60, "POST", path, authorization="Bearer c") == [500] * 60, "nothing of the tokens is spent"


def test_llm_streams_cost_what_was_guessed():
    """An answer whose headers do not tell its tokens stays at the guess: fifty of 200 are the minute's 10,000."""
    site = Site("llm.yaml")
    replies = [site.ask("POST", "/v1/chat/completions", authorization="Bearer a") for _ in range(51)]
    assert [reply.status for reply in replies] == [200] * 50 + [429]
    assert replies[-1].violated == ["tokens.1"]


def test_llm_streams_settle_at_their_end():
    """A stream tells its tokens after its last piece: of 10,000, three streams of 4,000 leave a debt of 2,000."""
    site = Site("llm.yaml")

    async def streaming(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for _ in range(2):
            await send({"type": "http.response.body", "body": b"data: token\n\n", "more_body": True})
        await send({"type": "http.response.body", "body": b""})
        scope["state"]["rate_limit"].settle(tokens=4000)

    site.gate.app = streaming
    replies = [site.ask("POST", "/v1/chat/completions", authorization="Bearer a") for _ in range(4)]
    assert [reply.status for reply in replies] == [200] * 3 + [429]
    assert (replies[-1].violated, replies[-1].retry_after) == (["tokens.1"], 14)


def test_llm_streams():
    """Four answers of one client are under way at once, and the fifth waits for one of them to end."""
    site = Site("llm.yaml")
    streaming, ends = site.gate.app, asyncio.Event()

    async def slow(scope: Any, receive: Any, send: Any) -> None:
        await ends.wait()
        await streaming(scope, receive, send)

    async def story() -> list[int]:
        under_way = [asyncio.ensure_future(asked()) for _ in range(4)]
        await asyncio.sleep(0)
        refused = await asked()
        assert (refused.violated, refused.retry_after) == (["streams"], None)
        ends.set()
        return [refused.status, *(each.status for each in await asyncio.gather(*under_way)), (await asked()).status]

    async def asked() -> Reply:
        return await site.request("POST", "/v1/chat/completions", "203.0.113.9", {"authorization": "Bearer a"}, None)

    site.gate.app = slow
    assert asyncio.run(story()) == [429, 200, 200, 200, 200, 200]


def test_llm_strangers():
    """Invented tokens have a budget each, and their address one for all of them."""
    site = Site("llm.yaml")
    site.status = 401
    codes = [site.ask("POST", "/v1/chat/completions", authorization=f"Bearer {each}").status for each in range(31)]
    assert codes == [401] * 30 + [429]
