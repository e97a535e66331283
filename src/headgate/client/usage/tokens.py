"""The tokens of one answer, as its `usage` tells them.

- OpenAI's chat, completions and embeddings, and Azure: `prompt_tokens`, of which `prompt_tokens_details.cached_tokens`
  came from a cache.
- OpenAI's responses: `input_tokens`, of which `input_tokens_details.cached_tokens` came from a cache.
- Anthropic: `input_tokens` and `cache_creation_input_tokens`, and beside them `cache_read_input_tokens` from a cache.

OpenAI counts cached tokens against its limits as it counts others; Anthropic does not count them, but for old models.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from headgate.client.usage.json_text import object_in, whole

CACHE_FIELDS: Final = ("cache_creation_input_tokens", "cache_read_input_tokens")


@dataclass(frozen=True, slots=True)
class Tokens:
    """The tokens of one request and its answer."""

    fresh: int
    """Input that was not in a cache."""
    cached: int
    output: int
    cached_count: bool
    """Whether the provider counts cached tokens as input."""

    def units(self, cached_count: bool | None) -> dict[str, int]:
        """Return the tokens by the names of limits; None: cached tokens count as the provider counts them."""
        counted = self.cached_count if cached_count is None else cached_count
        return by_name(self.fresh + self.cached * counted, self.output, self.cached)


def by_name(input_tokens: int, output_tokens: int, cached_tokens: int) -> dict[str, int]:
    """Return units under the names that limits may have."""
    return {
        "tokens": input_tokens + output_tokens,
        "input_tokens": input_tokens,
        "output_tokens": output_tokens,
        "cached_tokens": cached_tokens,
    }


def told_tokens(usage: dict[str, Any]) -> Tokens | None:
    """Return the tokens that a `usage` tells; None without a count of the input, or with a count that is not one."""
    if "input_tokens" not in usage:
        return _openai(usage, "prompt_tokens", "completion_tokens")
    if any(field in usage for field in CACHE_FIELDS) and "total_tokens" not in usage:
        return _anthropic(usage)
    return _openai(usage, "input_tokens", "output_tokens")


def _openai(usage: dict[str, Any], input_name: str, output_name: str) -> Tokens | None:
    told = {name: count for name, count in usage.items() if count is not None}
    total = whole(told.get("total_tokens", 0))
    entered = whole(told.get(input_name, told.get("total_tokens")))  # a reranker tells only the total
    left = whole(told.get(output_name, 0))  # embeddings have none
    if entered is None or left is None or total is None:
        return None
    cached = min(entered, whole(object_in(told, f"{input_name}_details").get("cached_tokens")) or 0)
    return Tokens(entered - cached, cached, max(left, total - entered), cached_count=True)


def _anthropic(usage: dict[str, Any]) -> Tokens | None:
    entered, left = whole(usage["input_tokens"]), whole(usage.get("output_tokens"))
    if entered is None or left is None:
        return None
    created, read = (whole(usage.get(field)) or 0 for field in CACHE_FIELDS)
    return Tokens(entered + created, read, left, cached_count=False)
