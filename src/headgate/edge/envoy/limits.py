"""`EnvoyLimits`: the limits of a directory, and the answer to a `RateLimitRequest`."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from headgate.algorithms import EXACT, NEVER
from headgate.caches import ClearedWhenFull
from headgate.clock import SECOND
from headgate.edge.envoy.deciding import Deciding, Gates, Question, Told, charged
from headgate.edge.envoy.following import Followed
from headgate.edge.envoy.messages import RateLimitResponse, request_from_json, response_to_json
from headgate.edge.envoy.rules import SECONDS_OF, Rule, find, key_of
from headgate.engine import Tally
from headgate.errors import InvalidCall
from headgate.limit import Limit
from headgate.stores import Store

ALLOWED, REFUSED = 0, 1
"""The numbers of a tally that are used here."""
OK: Final = 1
OVER_LIMIT: Final = 2
ENDLESS: Final = 2**32 - 1
"""The remaining requests of an unlimited descriptor."""
MOST_BROUGHT: Final = 1024
"""The most limits brought by requests that are kept."""


class EnvoyLimits:
    """All domains of a directory of envoyproxy/ratelimit, bound to a store.

    Raises `InvalidPolicy` with every mistake of every file. `algorithm` counts where a file names none.
    """

    def __init__(
        self, directory: Path, store: Store, *, algorithm: str = "fixed-window", namespace: str = "envoy"
    ) -> None:
        self._files = Followed(directory, algorithm)
        self._gates = Gates(store, namespace)
        self._tally = Tally()
        self._brought: ClearedWhenFull[tuple[int, int], Rule] = ClearedWhenFull(
            MOST_BROUGHT, lambda numbers: _brought(*numbers, algorithm)
        )

    def look(self) -> None:
        """Take up changed files; cheap, so that every request may call it."""
        self._files.look()

    @property
    def notes(self) -> tuple[str, ...]:
        """Fields of the files that do nothing, with file and line."""
        return self._files.domains.notes

    def counts(self) -> dict[str, int]:
        """Return the answers to requests that a limit applies to, by their result; they only grow."""
        numbers = self._tally.values()
        return {"allowed": numbers[ALLOWED], "refused": numbers[REFUSED]}

    async def answer(self, request: Any) -> tuple[bool, Any]:  # noqa: ANN401 - messages are made at run time
        """Return whether a request is allowed, and the response; raise `InvalidCall` for a request that makes none."""
        if not request.domain or not request.descriptors:
            raise InvalidCall("a request needs a domain and at least one descriptor")
        rules = self._rules(request)
        questions = [each for each in rules if each is not None and not each.rule.unlimited]
        response = RateLimitResponse()
        allowed, verdicts = True, dict[int, Told]()
        if len(questions) == 1 and _plain(questions[0]):
            gate = self._gates[questions[0].rule.limit]  # type: ignore[index]
            verdict = verdicts[questions[0].place] = await charged(gate, questions[0])
            allowed = verdict.allowed
        elif questions:
            deciding = Deciding(self._gates, questions)
            allowed = await deciding.run()
            verdicts.update(deciding.verdicts)
        if questions:
            self._tally.add(ALLOWED if allowed else REFUSED)
        response.overall_code = OK if allowed else OVER_LIMIT
        for each in rules:
            _tell(response.statuses.add(code=OK), each, verdicts)
        if not allowed:
            _tell_retry(response, verdicts.values())
        return allowed, response

    async def json(self, body: bytes) -> tuple[int, list[tuple[bytes, bytes]], bytes]:
        """Answer `POST /json`: status, header fields and body; 200 or 429, and 400 for a request that is none."""
        self.look()
        try:
            allowed, response = await self.answer(request_from_json(body))
        except (InvalidCall, ValueError) as error:
            return 400, [(b"content-type", b"text/plain; charset=utf-8")], str(error).encode()
        told = [(field.key.encode(), field.value.encode()) for field in response.response_headers_to_add]
        fields = [(b"content-type", b"application/json"), *told]
        return 200 if allowed else 429, fields, response_to_json(response).encode()

    def _rules(self, request: Any) -> list[Question | None]:  # noqa: ANN401
        """Return the rule, the key and the hits of each descriptor; None where no limit applies."""
        domain = self._files.domains.by_name.get(request.domain)
        if domain is None:
            return [None] * len(request.descriptors)
        found: list[Question | None] = []
        replaced: set[str] = set()
        for place, descriptor in enumerate(request.descriptors):
            entries = [(entry.key, entry.value) for entry in descriptor.entries]
            if descriptor.HasField("limit"):
                rule: Rule | None = self._brought[descriptor.limit.requests_per_unit, descriptor.limit.unit]
            else:
                rule, entries = find(domain, entries)
            if rule is None:
                found.append(None)
                continue
            replaced.update(rule.replaces)
            found.append(Question(place, rule, key_of(request.domain, entries), *_hits(request, descriptor)))
        if replaced:
            return [None if each is None or each.rule.name in replaced else each for each in found]
        return found


def _brought(amount: int, unit: int, algorithm: str) -> Rule:
    """Return the rule of a limit that a request brings; shadow mode does not apply to it."""
    if unit not in SECONDS_OF:
        raise InvalidCall(f"a limit in a request needs a unit; got {unit}")
    return Rule(amount, unit, Limit(amount, SECONDS_OF[unit], algorithm=algorithm) if amount else None)


def _hits(request: Any, descriptor: Any) -> tuple[int, bool]:  # noqa: ANN401
    """Return the hits of a descriptor, and whether they are brought.

    0 of a descriptor asks. 0 or 1 of a request is the one hit of a request that brings none: some clients spell it out.
    """
    if not descriptor.HasField("hits_addend"):
        return int(request.hits_addend) or 1, request.hits_addend > 1
    hits = min(int(descriptor.hits_addend.value), EXACT)
    return -hits if descriptor.is_negative_hits else hits, True


def _plain(question: Question) -> bool:
    """Whether one charge of one limit decides: the case of most requests."""
    rule = question.rule
    return rule.limit is not None and not rule.shadow and question.hits > 0


def _tell(status: Any, question: Question | None, verdicts: Any) -> None:  # noqa: ANN401
    """Fill in the status of a descriptor."""
    if question is None:
        return
    rule = question.rule
    if rule.unlimited:
        status.limit_remaining = ENDLESS
        return
    current = status.current_limit
    current.requests_per_unit, current.unit = rule.requests_per_unit, rule.unit
    if rule.name:
        current.name = rule.name
    verdict = verdicts[question.place]
    if (verdict is None or not verdict.allowed) and not rule.shadow:
        status.code = OVER_LIMIT
    if verdict is not None:
        status.limit_remaining = min(verdict.remaining, ENDLESS)
        status.duration_until_reset.seconds = -(-verdict.reset_us // SECOND)


def _tell_retry(response: Any, verdicts: Any) -> None:  # noqa: ANN401
    """Add `retry-after` to a refusal whose end is known."""
    refused: list[Told] = [each for each in verdicts if each is None or not each.allowed]
    if any(each is None or each.retry_us == NEVER for each in refused):
        return
    wait = max((each.retry_us for each in refused if each is not None), default=0)
    response.response_headers_to_add.add(key="retry-after", value=str(max(1, -(-wait // SECOND))))
