"""`chat`: the bodies of language models, as OpenAI, Azure, Anthropic and their likes write them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from math import ceil
from typing import Final, NamedTuple

from headgate.client.usage.bodies import EventStreamBody, JsonBody, ResponseBody, UnknownBody
from headgate.client.usage.decoding import decoded
from headgate.client.usage.json_text import parsed, whole
from headgate.client.usage.means import Means
from headgate.client.usage.prompt import Prompt, cap_of, choices_of, prompt_of
from headgate.client.usage.tokens import Tokens, by_name
from headgate.errors import InvalidCall
from headgate.wording import log_of, shown

log = log_of("headgate.client")

CHARACTERS_OF_A_TOKEN: Final = 4
FIRST_ANSWER: Final = 1_000
"""The tokens that are reserved for an answer of a model that has not answered yet, if the request has no maximum."""
LONGEST_BODY: Final = 1 << 25
"""A longer body is not read."""
LONGEST_MODEL: Final = 256


class Asked(NamedTuple):
    """The parts of a request's body that decide its cost."""

    entered: int
    """The tokens of its prompt, by a counter or by its characters."""
    cap: int | None
    """The most tokens of one answer."""
    choices: int


NOTHING: Final = Asked(0, 0, 1)


class Chat:
    """Reserves the prompt and the mean of recent answers, at most the request's maximum; settles by `usage`.

    `count` is a counter of one's own: it is given the texts of the prompt, joined by line ends, and returns their
    tokens. Without it a token is four characters. `cached_count` says whether cached tokens count as input; without it
    they count as OpenAI or Anthropic count them.
    """

    def __init__(self, count: Callable[[str], int] | None = None, *, cached_count: bool | None = None) -> None:
        if count is not None and not callable(count):
            raise InvalidCall(f"count must be a function of a text that returns its tokens; got {shown(count)}")
        if cached_count not in (None, True, False):
            raise InvalidCall(f"cached_count must be True, False or None; got {shown(cached_count)}")
        self._count = count
        self._cached_count = cached_count
        self._means = Means()
        self._warned = False

    def request(self, body: bytes | None) -> ChatRequest:
        """Read the body of a request; b"" asks for nothing, and a body that is no JSON has a prompt of 0 tokens."""
        if body == b"":
            return ChatRequest(None, NOTHING, self)
        fields = parsed(body) if body is not None and len(body) <= LONGEST_BODY else {}
        named = fields.get("model")
        model = named if isinstance(named, str) and 0 < len(named) <= LONGEST_MODEL else None
        asked = Asked(self._counted(prompt_of(fields)), cap_of(fields), choices_of(fields))
        return ChatRequest(model, asked, self)

    def _reserved(self, model: str | None, asked: Asked) -> dict[str, int]:
        entered, cap, choices = asked
        mean = self._means.of(model)
        if mean is None:
            return by_name(entered, (FIRST_ANSWER if cap is None else cap) * choices, 0)
        answer = ceil(mean.output if cap is None else min(mean.output, cap)) * choices
        return by_name(ceil(entered * mean.counted), answer, int(entered * mean.cached))

    def _counted(self, prompt: Prompt) -> int:
        if self._count is not None and prompt.texts:
            text = "\n".join(prompt.texts)
            try:
                told: object = self._count(text)
            except Exception as error:
                told = error
            if (tokens := whole(told)) is not None:
                return tokens + prompt.tokens
            self._warn(told)
        return ceil(sum(map(len, prompt.texts)) / CHARACTERS_OF_A_TOKEN) + prompt.tokens

    def _warn(self, told: object) -> None:
        if not self._warned:
            self._warned = True
            log.warning("the counter of tokens gave %s: a quarter of the characters is reserved instead", shown(told))

    def _settled(self, request: ChatRequest, tokens: Tokens | None) -> Mapping[str, int] | None:
        if tokens is None:
            return None
        self._means.add(request.model, tokens, request._asked.choices, self._cached_count)
        return tokens.units(self._cached_count)


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """A request to a language model."""

    model: str | None
    _asked: Asked
    _chat: Chat

    @property
    def units(self) -> Mapping[str, int]:
        """The units to reserve by the means of now: a request that has waited knows the answers before it."""
        return self._chat._reserved(self.model, self._asked)

    def reader(self, content_type: str = "", content_encoding: str = "") -> ChatReader:
        """Return a reader for an answer with these header fields."""
        answer = decoded(_answer_of(content_type), content_encoding)
        return ChatReader(answer, partial(self._chat._settled, self))


class ChatReader:
    """Reads the answer of one attempt."""

    __slots__ = ("_answer", "_result", "_settled")

    def __init__(self, answer: ResponseBody, settled: Callable[[Tokens | None], Mapping[str, int] | None]) -> None:
        self._answer: ResponseBody | None = answer
        self._settled = settled
        self._result: Mapping[str, int] | None = None

    def feed(self, chunk: bytes) -> None:
        """Look at the next bytes of the answer."""
        if self._answer is not None:
            self._answer.feed(chunk)

    def close(self) -> Mapping[str, int] | None:
        """Return the units that were used; None if the answer does not tell."""
        answer, self._answer = self._answer, None
        if answer is not None:
            self._result = self._settled(answer.tokens())
        return self._result


def _answer_of(content_type: str) -> ResponseBody:
    kind = content_type.partition(";")[0].strip().lower()
    if kind == "text/event-stream":
        return EventStreamBody()
    readable = kind in ("", "text/plain", "application/json") or kind.endswith("+json")
    return JsonBody() if readable else UnknownBody()


chat: Final = Chat()
"""A `Chat` with a quarter of the characters as the prompt; its means are shared by all budgets that use it."""
