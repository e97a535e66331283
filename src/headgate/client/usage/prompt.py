"""The prompt of a request: its texts, and a number of tokens for the parts that are none."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from headgate.client.usage.json_text import object_in, whole, written

PROMPTS: Final = ("system", "instructions", "messages", "prompt", "input", "suffix")
"""The fields of a body in which there are texts, in the order in which a model reads them."""
TEXTS: Final = (
    "name", "content", "text", "thinking", "reasoning_content", "refusal", "summary", "function", "function_call",
    "tool_calls", "arguments", "input", "output", "title", "context",
)  # fmt: skip
"""The fields of a message, or of a part of one, that a model reads."""
SCHEMAS: Final = ("tools", "functions")
MEDIA: Final = frozenset({
    "image", "image_url", "input_image", "computer_screenshot", "document", "file", "input_file", "input_audio",
    "audio", "video", "video_url",
})  # fmt: skip
MEDIUM_TOKENS: Final = 1_000
"""The tokens of an image, a file or a sound. An image of 1024 x 1024 is 765 for OpenAI, and 1,400 for Anthropic."""
CAPS: Final = ("max_completion_tokens", "max_tokens", "max_output_tokens", "max_tokens_to_sample")
MOST_CHOICES: Final = 128


@dataclass(slots=True)
class Prompt:
    """The texts of a request, and the tokens of its other parts."""

    texts: list[str] = field(default_factory=list)
    tokens: int = 0

    def add(self, value: object) -> None:
        """Add the texts in a value, in their order; without recursion, so that no nesting is too deep."""
        left = [value]
        while left:
            part = left.pop()
            if isinstance(part, str):
                self.texts.append(part)
            elif isinstance(part, list):
                if part and all(type(each) is int for each in part):
                    self.tokens += len(part)  # a prompt may be a list of tokens
                else:
                    left.extend(reversed(part))
            elif isinstance(part, dict):
                left.extend(reversed(self._fields(part)))

    def _fields(self, part: dict[str, Any]) -> list[Any]:
        kind = part.get("type")
        if isinstance(kind, str) and kind in MEDIA:
            source = object_in(part, "source")
            if source.get("type") in ("text", "content"):  # a document of Anthropic that is a text
                return [source.get("data"), source.get("content")]
            self.tokens += MEDIUM_TOKENS
            return []
        fields = [(name, part[name]) for name in TEXTS if name in part]
        return [
            written(value) if name in ("input", "arguments") and isinstance(value, dict) else value
            for name, value in fields
        ]


def prompt_of(body: dict[str, Any]) -> Prompt:
    """Return the prompt in a body: its messages, its system prompt, its tools and the schema of its answer."""
    prompt = Prompt()
    formats = (object_in(body, "response_format"), object_in(object_in(body, "text"), "format"))
    schemas = [body.get(name) for name in SCHEMAS]
    schemas += [each.get(name) for each in formats for name in ("json_schema", "schema")]
    prompt.texts.extend(written(each) for each in schemas if isinstance(each, dict | list))
    for name in PROMPTS:
        prompt.add(body.get(name))
    return prompt


def choices_of(body: dict[str, Any]) -> int:
    """Return the number of answers that a body asks for."""
    return min(max(whole(body.get("n")) or 1, 1), MOST_CHOICES)


def cap_of(body: dict[str, Any]) -> int | None:
    """Return the most tokens that one answer may have; None if the body does not say."""
    return min((cap for name in CAPS if (cap := whole(body.get(name))) is not None), default=None)
