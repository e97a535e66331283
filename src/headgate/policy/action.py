"""The action of a rule when a limit is used up: its `act`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal, cast, get_args

from headgate.clock import SECOND, write_seconds
from headgate.errors import HeadgateError
from headgate.limit import parse_period
from headgate.policy.field_types import TEXT, Field, Fields, table, time
from headgate.policy.parser import Parser
from headgate.policy.source import Path_
from headgate.wording import shown

Act = Literal["deny", "delay", "shadow", "observe", "mark"]
LETS_PASS: Final = frozenset({"observe", "mark"})
"""Actions that refuse no request."""
LONGEST_TIME: Final = 10**8
"""Seconds: three years."""
SHORTEST_DELAY: Final = 0.001
"""Seconds: the shortest time that can be written in words, 1ms."""
_CONTENT_TYPE: Final = re.compile(r"[!-.0-~]+/[!-~][ -~]*", re.ASCII)
DELAY: Final[Fields] = {
    "hold": Field(
        "The number of requests of a key that are held at once, including the one that passes. One more is "
        "refused with 429. Default: the limit's burst.",
        {"type": "integer", "minimum": 1},
    ),
    "at_most": Field(
        "The longest time that a request is held: 200ms, or seconds. A request that would wait longer is "
        "refused at once with 429 and is not charged. Default: no bound.",
        time(minimum=SHORTEST_DELAY),
    ),
}
DENY: Final[Fields] = {
    "status": Field("The status of the refusal. Default: 429.", {"type": "integer", "minimum": 400, "maximum": 599}),
    "message": Field(
        "A sentence for the client, in the body of the refusal; or one for each limit, by its name.",
        {"anyOf": [TEXT, {"type": "object", "additionalProperties": TEXT}]},
    ),
}
SHADOW: Final[Fields] = {
    "status": Field("The status of the response. Default: 200.", {"type": "integer", "minimum": 200, "maximum": 599}),
    "body": Field("The body of the response. Default: empty.", TEXT),
    "content_type": Field(
        "The content type of the body. Default: text/plain in UTF-8.",
        {"type": "string", "pattern": "^[!-~]+/[!-~]+[ -~]*$"},
    ),
}
DETAILS: Final[Fields] = {
    "deny": Field("Refuse, with a status or a message of its own.", table(DENY)),
    "delay": Field("Hold the request until the limit allows it.", table(DELAY)),
    "shadow": Field("Answer without calling the app.", table(SHADOW)),
}


@dataclass(frozen=True, slots=True)
class Action:
    """The action on a request over the limit."""

    kind: Act = "deny"
    hold: int = 0
    """The number of requests that a delay holds at once; 0 for the limit's burst."""
    at_most_us: int = 0
    """The longest delay: a request that would wait longer is refused; 0 for no bound."""
    status: int = 200
    body: bytes = b""
    content_type: str = "text/plain; charset=utf-8"
    refusal_status: int = 429
    """The status of a refusal."""
    messages: tuple[tuple[str, str], ...] = ()
    """Sentences for refused clients, by the name of the limit; "" for every limit."""

    def message_for(self, *names: str) -> str:
        """Return the message for a limit with these names, or for every limit; empty if there is none."""
        known = dict(self.messages)
        return next((known[name] for name in (*names, "") if name in known), "")

    @property
    def words(self) -> str:
        """The action for messages: `deny`, `delay of at most 0.2 s`."""
        return f"{self.kind} of at most {write_seconds(self.at_most_us)} s" if self.at_most_us else self.kind


def read_act(parser: Parser, value: object, path: Path_) -> Action:
    """Read a rule's `act`."""
    kinds = get_args(Act)
    if isinstance(value, str):
        kind = parser.one_of(value, path, kinds) or "deny"
        return Action(cast("Act", kind))
    given = parser.fields(value, path, kinds)
    if len(given) != 1:
        parser.error(path, f"expected one of {', '.join(kinds)}; got {shown(value)}")
        return Action()
    kind, details = next(iter(given.items()))
    if kind == "deny":
        return _deny(parser, details, (*path, kind))
    if kind == "delay":
        return _delay(parser, details, (*path, kind))
    if kind == "shadow":
        found = parser.fields(details, (*path, kind), SHADOW)
        body = found.get("body", "")
        if not isinstance(body, str) or not _is_text(body):
            parser.error((*path, kind, "body"), f"expected text; got {shown(body)}")
            body = ""
        kind_of = found.get("content_type", Action().content_type)
        if not isinstance(kind_of, str) or not _CONTENT_TYPE.fullmatch(kind_of):
            parser.error((*path, kind, "content_type"), f"expected a type such as text/html; got {shown(kind_of)}")
            kind_of = Action().content_type
        status = parser.whole(found.get("status", 200), (*path, kind, "status"), 200, 599)
        return Action("shadow", status=status, body=body.encode(), content_type=kind_of)
    parser.error(path, f"{kind} has no details; write act: {kind}")
    return Action(cast("Act", kind))


def _deny(parser: Parser, value: object, path: Path_) -> Action:
    given = parser.fields(value, path, DENY)
    status = parser.whole(given.get("status", 429), (*path, "status"), 400, 599)
    said = given.get("message", {})
    messages = {"": said} if isinstance(said, str) else said
    texts = messages.values() if isinstance(messages, Mapping) else [None]
    if not all(isinstance(each, str) and _is_text(each) for each in texts):
        parser.error((*path, "message"), f"expected text, or text by the names of limits; got {shown(said)}")
        messages = {}
    return Action(refusal_status=status, messages=tuple((str(name), text) for name, text in messages.items()))


def _delay(parser: Parser, value: object, path: Path_) -> Action:
    given = parser.fields(value, path, DELAY)
    hold = parser.whole(given["hold"], (*path, "hold"), 1) if "hold" in given else 0
    if "at_most" not in given:
        return Action("delay", hold=hold)
    at_most = read_time(parser, given["at_most"], (*path, "at_most"), "200ms", least=SHORTEST_DELAY)
    return Action("delay", hold=hold, at_most_us=round(at_most * SECOND))


def _is_text(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def read_time(parser: Parser, value: object, path: Path_, such_as: str, least: float = 0.0) -> float:
    """Read a time such as `10m`, or a number of seconds, as seconds."""
    if isinstance(value, str):
        try:
            return parse_period(value) / SECOND
        except HeadgateError as reason:
            parser.error(path, str(reason))
            return 0.0
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 < value <= LONGEST_TIME and value >= least:
        return float(value)
    parser.error(path, f"expected a time such as {such_as}; got {shown(value)}")
    return 0.0
