"""FastAPI: decorators at endpoints of every kind."""

from __future__ import annotations

import functools
import threading
from typing import TYPE_CHECKING, Annotated, Any

import pytest
from fastapi import BackgroundTasks, Header, Query
from fastapi import Request as AnyRequest
from fastapi import Response as AnyResponse
from fastapi.responses import JSONResponse

from headgate.web.fastapi import limited
from tests.web.test_fastapi import Item, site

pytestmark = pytest.mark.engineless


if TYPE_CHECKING:
    from nowhere import Unknown  # type: ignore[import-not-found]


@limited("1/hour")
async def plain(q: int) -> int:
    return q


@limited("1/hour")
def in_a_thread(q: int = 3) -> int:
    assert threading.current_thread() is not threading.main_thread()
    return q


@limited("1/hour")
async def other_name(r: AnyRequest, q: int) -> int:
    assert r.url.path == "/x"
    return q


@limited("1/hour")
async def keyword_only(*, q: int) -> int:
    return q


@limited("1/hour")
async def annotated(q: Annotated[int, Query(ge=0)], user_agent: Annotated[str, Header()] = "") -> int:
    assert user_agent == "testclient"
    return q


@limited("1/hour")
async def with_everything(
    q: int, request: AnyRequest, response: AnyResponse, tasks: BackgroundTasks, agent: str = Header("")
) -> int:
    response.headers["x-response"] = "1"
    tasks.add_task(request.app.state.ran.append, q)
    return q


@limited("1/hour")
async def stacked_outside(q: int) -> int:
    return q


@limited("1/hour")
async def unknown_here(item: Annotated[int, Query(alias="q")]) -> Unknown:
    return item


@limited("1/hour")
async def returns_a_response(q: int) -> JSONResponse:
    return JSONResponse(q)


@limited("1/hour")
async def returns_a_model(q: int) -> Item:
    return Item(name="it", price=q)


class Methods:
    @limited("1/hour")
    async def method(self, q: int) -> int:
        return q

    async def __call__(self, q: int) -> int:
        return q


class InAThread:
    def __call__(self, q: int) -> int:
        assert threading.current_thread() is not threading.main_thread()
        return q


async def two(factor: int, q: Annotated[int, Query()]) -> int:
    return factor * q


ENDPOINTS: dict[str, Any] = {
    "function": plain,
    "in a thread": in_a_thread,
    "request by another name": other_name,
    "keyword only": keyword_only,
    "annotated": annotated,
    "returns a response": returns_a_response,
    "returns what only the type checker knows": unknown_here,
    "method": Methods().method,
    "object": limited("1/hour")(Methods()),
    "object in a thread": limited("1/hour")(InAThread()),
    "partial": limited("1/hour")(functools.partial(two, factor=1)),
    "partial around": functools.partial(limited("1/hour")(two), factor=1),
}


@pytest.mark.parametrize("kind", ENDPOINTS)
def test_a_decorated_endpoint_is_called_as_it_was(kind):
    """Whatever it asks for, and by whatever name; types may be written as strings."""
    at = site()
    at.app.get("/x", response_model=None)(ENDPOINTS[kind])
    answer = at.client.get("/x?q=3")
    assert (answer.status_code, answer.json()) == (200, 3), answer.text
    assert answer.headers["ratelimit"] == '"x";r=0;t=3600'
    assert at.codes("/x?q=3") == [429]
    assert "headgate" not in str(at.app.openapi())


def test_a_decorated_endpoint_may_ask_for_everything():
    """Response and background tasks work as they do."""
    at = site()
    at.app.state.ran = []
    at.app.get("/x")(with_everything)
    answer = at.client.get("/x?q=3")
    assert (answer.json(), answer.headers["x-response"], at.app.state.ran) == (3, "1", [3])
    assert at.codes("/x?q=3") == [429] and at.app.state.ran == [3]


@limited("1/hour")
async def body_called_request(request: Item) -> str:
    return request.name


@limited("1/hour")
async def takes_any(request: Item, **kwargs: Any) -> str:
    return request.name


def test_a_body_may_be_called_request():
    """It is not taken for one."""
    at = site()
    at.app.post("/x")(body_called_request)
    assert [at.client.post("/x", json={"name": "it"}).status_code for _ in range(2)] == [200, 429]
    at.app.post("/y")(takes_any)
    assert at.client.post("/y?kwargs=1", json={"name": "it"}).json() == "it"


def test_a_model_that_is_returned_is_the_responses():
    """Its type is read through the decorator, and documented."""
    at = site()
    at.app.get("/x")(returns_a_model)
    assert at.client.get("/x?q=3").json() == {"name": "it", "price": 3.0}
    ok = at.app.openapi()["paths"]["/x"]["get"]["responses"]["200"]
    assert ok["content"]["application/json"]["schema"] == {"$ref": "#/components/schemas/Item"}


def test_stacked_decorators_are_one_decision():
    """One name for each."""
    at = site()
    at.app.get("/x")(limited("5/day", key="everyone")(stacked_outside))
    assert at.client.get("/x?q=1").headers["ratelimit"] == '"x";r=4;t=17280, "x.2";r=0;t=3600'
