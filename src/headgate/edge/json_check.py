"""`POST /v1/check`: one question, or a list of up to 100, as JSON. All are read before the first one is counted."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, NoReturn

from headgate.edge.fields import OF_LIMIT, OF_POLICY, Field
from headgate.edge.limit_check import NamedLimits
from headgate.edge.policy_check import PolicyCheck
from headgate.edge.responses import as_json, problem
from headgate.errors import HeadgateError, InvalidCall, StoreError
from headgate.web import RawResponse
from headgate.wording import shown, suggestion

MOST: Final = 100
"""Questions in one request."""
MOST_BYTES: Final = 1_048_576
MOST_MISTAKES: Final = 20
Receive = Callable[[], Awaitable[Any]]
Decide = Callable[[], Awaitable[dict[str, Any]]]


class Mistakes(Exception):
    """The mistakes in a question, by field."""

    def __init__(self, *found: dict[str, str]) -> None:
        super().__init__(found)
        self.found = found


class JsonCheck:
    """Reads questions, and answers them in their order; each is a decision of its own."""

    def __init__(self, policy_check: PolicyCheck | None, plain: NamedLimits) -> None:
        self._policy_check = policy_check
        self._plain = plain

    async def __call__(self, receive: Receive) -> RawResponse[bytes]:
        """Answer one request."""
        body = await read_body(receive)
        if body is None:
            return problem(413, f"send at most {MOST_BYTES} bytes")
        try:
            asked = json.loads(body, parse_constant=_no_number)
        except (ValueError, RecursionError):
            return problem(400, "the body is not JSON: send a question, or a list of questions")
        several = isinstance(asked, list)
        if several and not 1 <= len(asked) <= MOST:
            return problem(422, f"send from 1 to {MOST} questions; got {len(asked)}")
        try:
            found = self._read_all(asked if several else [asked], several)
            answers = [await decide() for decide in found]
        except Mistakes as mistakes:
            return problem(422, "a question cannot be read", mistakes=list(mistakes.found[:MOST_MISTAKES]))
        except StoreError as reason:
            return problem(503, str(reason))
        return as_json(answers if several else answers[0])

    def _read_all(self, asked: list[Any], several: bool) -> list[Decide]:
        found: list[Decide] = []
        mistakes: list[dict[str, str]] = []
        for at, question in enumerate(asked):
            try:
                found.append(self._read(question, f"[{at}]" if several else ""))
            except Mistakes as these:
                mistakes += these.found
        if mistakes:
            raise Mistakes(*mistakes)
        return found

    def _read(self, question: Any, at: str) -> Decide:  # noqa: ANN401
        if not isinstance(question, dict):
            raise Mistakes({"at": at, "detail": f"expected an object; got {shown(question)}"})
        if "limit" in question or "key" in question:
            given = _given(question, OF_LIMIT, at, ("limit", "key"))
            try:
                return self._plain.question(**given)
            except StoreError:
                raise
            except HeadgateError as reason:
                raise Mistakes({"at": f"{at}.limit".lstrip("."), "detail": str(reason)}) from None
        if self._policy_check is None:
            raise Mistakes({"at": at, "detail": "this service has no policy: ask for a limit and a key"})
        return self._policy_check.question(**_given(question, OF_POLICY, at, ()))


def _given(
    question: Mapping[str, Any], fields: Mapping[str, Field], at: str, needed: tuple[str, ...]
) -> dict[str, Any]:
    """Return the fields of a question, read; raise for all that cannot be."""
    mistakes = [{"at": at, "detail": f"a plain question needs {name!r}"} for name in needed if name not in question]
    given = {}
    for name, value in question.items():
        where = f"{at}.{name}".lstrip(".")[:100]
        if name not in fields:
            mistakes.append({"at": where, "detail": f"unknown field; {suggestion(name, fields)}"})
            continue
        try:
            given[name] = fields[name].read(value)
        except InvalidCall as reason:
            mistakes.append({"at": where, "detail": str(reason)})
    if mistakes:
        raise Mistakes(*mistakes)
    return given


async def read_body(receive: Receive) -> bytes | None:
    """Return the body of a request; None if it is too long, of which the server drops the rest."""
    parts, length = [], 0
    while True:
        message = await receive()
        part = message.get("body", b"")
        length += len(part)
        if length > MOST_BYTES:
            return None
        parts.append(part)
        if not message.get("more_body", False):  # also if the client is gone
            return b"".join(parts)


def _no_number(text: str) -> NoReturn:
    raise ValueError(f"{text} is not JSON")
