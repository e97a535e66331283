"""FastAPI: what the OpenAPI document says of limits."""

from __future__ import annotations

import pytest
from fastapi import APIRouter, Depends, FastAPI

from headgate.web.fastapi import limit, limited
from tests.web.test_fastapi import Item, once, site

pytestmark = pytest.mark.engineless


def test_the_document_tells_of_429_and_its_fields_wherever_a_limit_may_refuse():
    """At endpoints, in routers at any depth, by a policy; and nowhere else."""
    policy = {"headers": ["draft-11", "x-ratelimit"], "rules": [
        {"match": {"path": "/api/**", "method": "GET"}, "key": "ip", "limits": "9/hour"},
    ]}  # fmt: skip
    at = site(policy=policy)
    outer, inner = APIRouter(prefix="/outer", dependencies=[once()]), APIRouter(prefix="/{tenant}")

    @inner.get("/x")
    @at.app.get("/free")
    @at.app.get("/api/{id}")
    @at.app.post("/api/{id}")
    def endpoint() -> None: ...

    @at.app.get("/decorated", responses={429: {"description": "Slow down", "model": Item}})
    @limited("1/hour")
    def decorated() -> None: ...

    @inner.get("/hidden", include_in_schema=False)
    def hidden() -> None: ...

    @at.app.get("/messages", dependencies=[Depends(limit("1/hour", messages=True))])
    def not_for_messages() -> None: ...

    outer.include_router(inner)
    at.app.include_router(outer)
    document = at.client.get("/openapi.json").json()
    told = {
        (path, method): operation["responses"]["429"]
        for path, operations in document["paths"].items()
        for method, operation in operations.items()
        if "429" in operation["responses"]
    }
    assert set(told) == {("/outer/{tenant}/x", "get"), ("/api/{id}", "get"), ("/decorated", "get")}
    answer = told["/api/{id}", "get"]
    assert answer["description"] == "Too Many Requests"
    assert answer["content"] == {"application/problem+json": {"schema": {"type": "object"}}}
    assert answer["headers"] == {
        **{f"X-RateLimit-{part}": {"schema": {"type": "string"}} for part in ("Limit", "Remaining", "Reset")},
        "RateLimit-Policy": {"schema": {"type": "string"}}, "RateLimit": {"schema": {"type": "string"}},
        "Retry-After": {"schema": {"type": "integer"}},
    }  # fmt: skip
    mine = told["/decorated", "get"]
    assert mine["description"] == "Slow down" and mine["headers"] == answer["headers"]
    assert mine["content"]["application/json"]["schema"] == {"$ref": "#/components/schemas/Item"}
    del at.app.openapi()["paths"]["/decorated"]["get"]["responses"]["429"]
    assert "429" not in at.app.openapi()["paths"]["/decorated"]["get"]["responses"], "it is made once"


def test_a_document_of_the_apps_own_is_kept():
    """The limits are told in the document that the app makes."""
    app = FastAPI()
    made = {"openapi": "3.1.0", "paths": {"/x": {"get": {}}, "/y": {"get": {"responses": {}}}}}
    app.openapi = lambda: made  # type: ignore[method-assign]
    at = site(app, default="1/hour")

    @at.app.get("/x")
    def endpoint() -> None: ...

    document = at.app.openapi()
    assert document is made
    assert set(document["paths"]["/x"]["get"]["responses"]) == {"429"}
    assert document["paths"]["/y"]["get"] == {"responses": {}}
