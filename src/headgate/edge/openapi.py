"""The OpenAPI document of the service, made from the fields by which questions are read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from headgate.edge.fields import OF_LIMIT, OF_POLICY, Field
from headgate.edge.json_check import MOST
from headgate.edge.original_request import METHOD_PATTERN, TARGET_PATTERN
from headgate.version import __version__

Schema = Mapping[str, Any]
_SECONDS: Final = {"type": ["number", "null"], "minimum": 0}
_MICROSECONDS: Final = {"type": ["integer", "null"], "minimum": 0}
_COUNT: Final = {"type": "integer", "minimum": 0}
_MAYBE: Final = {"type": ["integer", "null"], "minimum": 0}
_TEXT: Final = {"type": ["string", "null"]}


def _object(properties: Schema, required: list[str] | None = None) -> dict[str, Any]:
    every = list(properties) if required is None else required
    return {"type": "object", "additionalProperties": False, "required": every, "properties": properties}


_VERDICT: Final = _object(
    {"allowed": {"type": "boolean"}, "remaining": _COUNT, "retry_us": _MICROSECONDS, "reset_us": _MICROSECONDS}
)
_CALL: Final = _object({"limit": {"type": "string"}, "key": {"type": "string"}, "cost": _COUNT})
DECISION: Final[dict[str, Any]] = {
    "allowed": {"type": "boolean", "description": "Whether the request may pass."},
    "limit": {**_MAYBE, "description": "The most that can pass at once under the binding limit."},
    "remaining": {**_MAYBE, "description": "What is left of it."},
    "retry_after": {**_SECONDS, "description": "Seconds until it is allowed; null if no wait helps, or none is known."},
    "reset_after": {**_SECONDS, "description": "Seconds until every limit is as if unused."},
    "retry_us": {**_MICROSECONDS, "description": "The same as retry_after, in microseconds."},
    "reset_us": {**_MICROSECONDS, "description": "The same as reset_after, in microseconds."},
    "granted": {**_MAYBE, "description": "Units granted; 0 if refused."},
    "never": {"type": "boolean", "description": "Whether the cost is above the burst: no wait helps."},
    "unknown": {"type": "boolean", "description": "Whether the wait cannot be known."},
    "degraded": {"type": "boolean", "description": "Whether the store gave no answer, and a worker counted alone."},
    "binding": {**_TEXT, "description": "The limit that decides; null if no limit was asked."},
    "costs": {"type": "array", "items": _COUNT, "description": "The cost of each call."},
    "calls": {"type": "array", "items": _CALL, "description": "Each limit that was asked, with key and cost."},
    "verdicts": {"type": "array", "items": _VERDICT, "description": "The answer of each limit."},
}
OF_RULES: Final[dict[str, Any]] = {
    "status": {"type": "integer", "description": "The status to answer the client with; 204 to let it pass."},
    "rule": {**_TEXT, "description": "The rule that refuses or, of a yes, the one with the least left."},
    "delay": {"type": "number", "minimum": 0, "description": "Seconds to hold the request before it passes."},
    "marks": {
        "type": "array",
        "items": {"type": "string"},
        "description": "The rules with `act: mark` over whose limits the request is.",
    },
    "headers": {
        "type": "object",
        "additionalProperties": {"type": "string"},
        "description": "Header fields for the response to the client.",
    },
    "detail": {**_TEXT, "description": "What is wrong with the request, if no limit refused it."},
}
_PROBLEM: Final = {
    "type": "object",
    "required": ["type", "title", "status", "detail"],
    "properties": {
        "type": {"type": "string"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string"},
        "violated-policies": {"type": "array", "items": {"type": "string"}},
        "mistakes": {"type": "array", "items": _object({"at": {"type": "string"}, "detail": {"type": "string"}})},
    },
}
_STATUS: Final = _object({"status": {"enum": ["ok", "ready", "draining"]}})


def document(has_policy: bool, has_token: bool) -> dict[str, Any]:
    """Return the document of a service; one without a policy has no /check."""
    paths: dict[str, Any] = {
        "/v1/check": {"post": _post(has_policy)},
        "/healthz": {"get": _get("Whether the process runs.", {200: ("The process runs.", _STATUS)})},
        "/readyz": {
            "get": _get(
                "Whether to send questions here.",
                {200: ("The service is ready.", _STATUS), 503: ("It ends soon.", _STATUS)},
            )
        },
        "/openapi.json": {"get": _get("This document.", {200: ("This document.", {"type": "object"})})},
    }
    if has_policy:
        paths["/check"] = {"get": _check()}
    security: dict[str, Any] = {}
    if has_token:
        token = {"type": "apiKey", "in": "header", "name": "X-Headgate-Token"}
        security = {"security": [{"token": []}], "components": {"securitySchemes": {"token": token}}}
        for path, verbs in paths.items():
            for verb in verbs.values():
                if path in ("/healthz", "/readyz"):
                    verb["security"] = []
                else:
                    verb["responses"]["401"] = _response("The token is missing or wrong.", _PROBLEM)
    info = {"title": "Headgate", "version": __version__, "description": "Rules on requests: may they pass, and when?"}
    return {"openapi": "3.1.0", "info": info, "paths": paths, **security}


def _get(about: str, answers: Mapping[int, tuple[str, Schema]]) -> dict[str, Any]:
    responses = {str(status): _response(*answer) for status, answer in answers.items()}
    return {"summary": about, "responses": responses}


def _response(about: str, schema: Schema) -> dict[str, Any]:
    kind = "application/problem+json" if schema is _PROBLEM else "application/json"
    return {"description": about, "content": {kind: {"schema": schema}}}


def _post(has_policy: bool) -> dict[str, Any]:
    question: dict[str, Any] = _question(OF_LIMIT, ["limit", "key"])
    answer: dict[str, Any] = _object(DECISION)
    if has_policy:
        question = {"anyOf": [question, _question(OF_POLICY, [])]}
        answer = {"anyOf": [answer, _object({**DECISION, **OF_RULES})]}
    several = {"type": "array", "minItems": 1, "maxItems": MOST, "items": question}
    body = {"required": True, "content": {"application/json": {"schema": {"anyOf": [question, several]}}}}
    answers = {"anyOf": [answer, {"type": "array", "items": answer}]}
    responses = {"200": _response("The answers, in the order of the questions.", answers)}
    for status, about in (
        (400, "The body is not JSON."),
        (413, "The body is too long."),
        (422, "A question cannot be read; mistakes has each of them. No question was counted."),
        (503, "The store gave no answer."),
    ):
        responses[str(status)] = _response(about, _PROBLEM)
    return {"summary": f"Ask one question, or up to {MOST}.", "requestBody": body, "responses": responses}


def _question(fields: Mapping[str, Field], needed: list[str]) -> dict[str, Any]:
    return _object({name: {"description": each.about, **each.schema} for name, each in fields.items()}, needed)


def _check() -> dict[str, Any]:
    """Return the question of a proxy."""
    told = {
        "X-Forwarded-Method": (
            "The method of the request.",
            True,
            {"type": "string", "pattern": f"^{METHOD_PATTERN}$"},
        ),
        "X-Forwarded-Uri": (
            "The target of the request.",
            True,
            {"type": "string", "pattern": TARGET_PATTERN},
        ),
        "X-Forwarded-Host": ("The host of the request.", False, {"type": "string"}),
        "X-Forwarded-For": ("The client, and proxies before this one.", False, {"type": "string"}),
    }
    parameters = [
        {"name": name, "in": "header", "description": about, "required": needed, "schema": schema}
        for name, (about, needed, schema) in told.items()
    ]
    deny = "Answer 403 in place of each refusal but 401, and its status in X-Headgate-Status: for nginx."
    parameters.append({"name": "deny", "in": "query", "description": deny, "schema": {"enum": ["403"]}})
    responses: dict[str, Any] = {"204": {"description": "The request may pass; with the policy's header fields."}}
    for status, about in (
        (400, "The proxy does not tell the request, or rules cannot read it."),
        (401, "A part of a rule's key is missing, and the client can send it."),
        (403, "The policy denies the request; with deny=403, every other refusal too."),
        (421, "The peer is no trusted proxy."),
        (429, "A limit is used up."),
        (503, "The store gave no answer, and a rule refuses without one."),
    ):
        responses[str(status)] = _response(about, _PROBLEM)
    return {"summary": "Ask as a proxy about a request.", "parameters": parameters, "responses": responses}
