"""FastAPI: limits as dependencies and as decorators, a policy in front of the app, and 429 in the OpenAPI document.

limits = RateLimits(app, default="100/minute", store="redis://cache")

@app.get("/items/{id}", dependencies=[Depends(limit("10/minute"))])
def item(id: int): ...

@app.get("/search")
@limited("5/minute", key=lambda request: request.headers.get("x-api-key"))
async def search(q: str): ...
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from types import BuiltinMethodType
from typing import Any, Final, Unpack

from headgate.wording import requiring

with requiring("headgate.web.fastapi", "fastapi"):
    from fastapi import FastAPI


from headgate.errors import InvalidCall
from headgate.web import asgi
from headgate.web.callables import full_name, mark_of
from headgate.web.headers import fields_of
from headgate.web.options import Options, PolicyGiven
from headgate.web.request_decision import RequestDecision
from headgate.web.starlette import Limit, RateLimitExceeded, RateLimitMiddleware, exempt, limited
from headgate.web.starlette import RateLimits as StarletteRateLimits
from headgate.web.starlette_limits import EXEMPT
from headgate.web.starlette_routes import flat

__all__ = ["RateLimitExceeded", "RateLimitMiddleware", "RateLimits", "RequestDecision", "exempt", "limit", "limited"]

limit = Limit
"""`Depends(limit("10/minute"))`"""
TOO_MANY: Final = "429"


class RateLimits(StarletteRateLimits):
    """Starlette's `RateLimits`, which also adds a 429 to the OpenAPI document wherever there is a limit."""

    def __init__(
        self,
        app: FastAPI,
        policy: PolicyGiven | None = None,
        *,
        default: Any = None,  # noqa: ANN401
        key: Any = "ip",  # noqa: ANN401
        **options: Unpack[Options],
    ) -> None:
        super().__init__(app, policy, default=default, key=key, **options)
        self._document = app.openapi
        app.openapi = self._openapi  # type: ignore[method-assign]

    def _surround(self) -> asgi.App:
        for route in flat(self._app.routes):
            refuse_mistakes(getattr(route, "dependant", None))
        return super()._surround()

    def limits_at(self, route: Any) -> tuple[Limit, ...]:  # noqa: ANN401
        """Return an endpoint's own limits: its decorators', and those among its dependencies."""
        limits = super().limits_at(route)
        return limits if mark_of(route.endpoint, EXEMPT) else (*limits, *limits_of(getattr(route, "dependant", None)))

    def decisions_at(self, route: Any) -> Sequence[Sequence[Limit]]:  # noqa: ANN401
        """Return the limits of each decision: of each dependency, then those of the decorators together."""
        exempted = mark_of(route.endpoint, EXEMPT)
        dependencies = () if exempted else dict.fromkeys(limits_of(getattr(route, "dependant", None)))
        return [*([each] for each in dependencies), *super().decisions_at(route)]

    def _openapi(self) -> dict[str, Any]:
        """Return the document, with a 429 wherever a limit may refuse."""
        known = self._app.openapi_schema
        document: dict[str, Any] = self._document()
        if document is not known:
            for path, method in self._limited_operations():
                operation = document.get("paths", {}).get(path, {}).get(method)
                if operation is not None:
                    told = operation.setdefault("responses", {}).setdefault(TOO_MANY, _too_many())
                    told.setdefault("headers", self._fields())
        return document

    def _limited_operations(self) -> Iterator[tuple[str, str]]:
        for route in flat(self._app.routes):
            if hasattr(route, "dependant") and hasattr(route, "methods"):
                yield from ((route.path_format, each.lower()) for each in route.methods if self._limits(route, each))

    def _limits(self, route: Any, method: str) -> bool:  # noqa: ANN401
        """Return whether a limit may refuse: the endpoint's own, a default one, or a rule that matches the template."""
        return (
            any(not each.messages for each in self.limits_at(route))
            or (self._default is not None and not mark_of(route.endpoint, EXEMPT))
            or bool(self.policy.rules_for(method, route.path_format).pairs)
        )

    def _fields(self) -> dict[str, Any]:
        fields = {field: "string" for style in self.policy.headers for field in fields_of(style)}
        return {field: {"schema": {"type": kind}} for field, kind in {**fields, "Retry-After": "integer"}.items()}


def limits_of(dependant: Any) -> Iterator[Limit]:  # noqa: ANN401
    """Yield the limits among the dependencies of an endpoint, at any depth."""
    if dependant is not None:
        if isinstance(dependant.call, Limit):
            yield dependant.call
        for each in dependant.dependencies:
            yield from limits_of(each)


def refuse_mistakes(dependant: Any) -> None:  # noqa: ANN401
    """Raise `InvalidCall` for `Depends(limiter.hit)`: its key, cost and limit would be the client's to choose.

    FastAPI itself refuses methods of the pure engine, by their types. Those of the native engine have names alone.
    A limit without `Depends` is a default value to FastAPI, and limits nothing.
    """
    if dependant is None:
        return
    call = dependant.call
    if isinstance(call, BuiltinMethodType) and type(call.__self__).__module__.partition(".")[0] == "headgate":
        raise InvalidCall(
            f"Depends(limiter.{call.__name__}) takes the key, the cost and the limit from the query, where the client "
            "chooses them; write a function that takes the request, chooses the key and calls the limiter"
        )
    for name, parameter in inspect.signature(call).parameters.items() if call is not None else ():
        if isinstance(parameter.default, Limit):
            raise InvalidCall(
                f"{name}=limit(...) at {full_name(call)} limits nothing: write {name}=Depends(limit(...)), or "
                "dependencies=[Depends(limit(...))] at the route"
            )
    for each in dependant.dependencies:
        refuse_mistakes(each)


def _too_many() -> dict[str, Any]:
    return {
        "description": "Too Many Requests",
        "content": {"application/problem+json": {"schema": {"type": "object"}}},
    }
