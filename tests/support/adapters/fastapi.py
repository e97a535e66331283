"""FastAPI, with limits as decorators and as dependencies."""

from __future__ import annotations

from typing import Any, ClassVar

from fastapi import Depends, FastAPI, Request
from fastapi.responses import Response

from headgate.testing.edges import Endpoint, with_functions
from headgate.web import fastapi
from tests.support.adapters.starlette import StarletteSuite, asked, by_request, respond


class FastApiSuite(StarletteSuite):
    """`@limited`."""

    edge: ClassVar[Any] = fastapi
    dependencies = False

    def framework(self) -> FastAPI:
        return FastAPI(openapi_url=None)

    def put(self, built: Any, endpoint: Endpoint, awaited: bool) -> None:
        """One route, whose function asks for the request by a name of its own."""

        def view(it: Request) -> Response:
            return respond(endpoint.handle(asked(it)))

        view.__annotations__ = {"it": Request, "return": Response}
        methods: Any = {"methods": list(endpoint.methods), "response_model": None}
        if "GET" in methods["methods"]:
            methods["methods"] += ["HEAD"]
        if self.dependencies and not endpoint.above:
            given = [Depends(fastapi.limit(**with_functions(limit, by_request))) for limit in endpoint.limits]
            exempt = fastapi.exempt(view) if endpoint.exempt else view
            built.add_api_route(endpoint.path, exempt, dependencies=given, **methods)
        elif endpoint.above:
            built.add_api_route(endpoint.path, view, **methods)
            self.decorated(view, endpoint)
        else:
            built.add_api_route(endpoint.path, self.decorated(view, endpoint), **methods)


class FastApiDependencySuite(FastApiSuite):
    """`Depends(limit(...))`."""

    dependencies = True
    test_an_exempt_endpoint_keeps_its_own_limits = None  # type: ignore[assignment]
    """FastAPI does not tell the dependencies of an endpoint from those of its router, which are not its own."""
