"""Running means of recent answers, one for each model."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Final

from headgate.client.usage.tokens import Tokens
from headgate.forks import after_fork

WEIGHT: Final = 0.05
"""The weight of a new answer. The first twenty count alike, so that the very first does not weigh on them all."""
MOST_MODELS: Final = 256


@dataclass(frozen=True, slots=True)
class Mean:
    """The means of one model's recent answers."""

    answers: int
    output: float
    """Tokens of an answer."""
    counted: float
    """The share of the input that counted as input: below 1 where cached tokens do not count."""
    cached: float
    """The share of the input that came from a cache."""


class Means:
    """The means of all models; the model that was not heard of for longest gives its place to a new one."""

    def __init__(self) -> None:
        self._by_model: dict[str | None, Mean] = {}
        self._renew()
        after_fork(self._renew)

    def _renew(self) -> None:
        self._lock = threading.Lock()

    def of(self, model: str | None) -> Mean | None:
        """Return the mean of a model; None before its first answer."""
        with self._lock:
            return self._by_model.get(model)

    def add(self, model: str | None, tokens: Tokens, choices: int, cached_count: bool | None) -> None:
        """Count one more answer, which had this number of choices."""
        entered = tokens.fresh + tokens.cached
        counted = tokens.units(cached_count)["input_tokens"] / entered if entered else 1.0
        cached = tokens.cached / entered if entered else 0.0
        output = tokens.output / choices
        with self._lock:
            old = self._by_model.pop(model, None) or Mean(0, output, counted, cached)
            weight = max(WEIGHT, 1 / (old.answers + 1))
            new = Mean(
                old.answers + 1,
                old.output + weight * (output - old.output),
                old.counted + weight * (counted - old.counted),
                old.cached + weight * (cached - old.cached),
            )
            if len(self._by_model) >= MOST_MODELS:
                del self._by_model[next(iter(self._by_model))]
            self._by_model[model] = new
