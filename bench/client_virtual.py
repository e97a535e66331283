"""Clients in virtual time: crowds after an outage, and traces of language models. Nothing here is timed."""

from __future__ import annotations

import csv
import gzip
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from bench.contestant import MissingError
from bench.harness import ROOT
from bench.measure import Figures

CROWDS = ("untold", "ten_seconds", "the_end")
"""What a server that is away tells: functions of the simulation."""
MINUTES = 10
BY_MEAN, BY_MAXIMUM = "the mean", "max_tokens"
MOST_EXCHANGES = 4_000


class Trace(NamedTuple):
    """A file, the fields of its rows, and limits a minute that it exceeds."""

    file: str
    prompt: str
    answer: str
    tokens: int
    requests: int = 500


TRACES = {
    "Azure, code": Trace("AzureLLMInferenceTrace_code.csv.gz", "ContextTokens", "GeneratedTokens", 200_000),
    "Mooncake, conversations": Trace(
        "mooncake_conversation_trace.jsonl.gz", "input_length", "output_length", 2_000_000
    ),
    "LMSYS, 27 clients": Trace("vtc-lmsys-27clients.csv.gz", "prompt_len", "output_len", 200_000, 5_000),
}
COUNTERS = {"bucket": "WholeBucket", "exact log": "ExactLog"}
REPLAYS = tuple(f"{trace} | {kind} | {by}" for trace in TRACES for kind in COUNTERS for by in (BY_MEAN, BY_MAXIMUM))


def crowd_back(name: str) -> Figures:
    from tests.support import virtual_outage

    seconds = virtual_outage.outage(getattr(virtual_outage, name))
    mean = sum(seconds.after) / len(seconds.after)
    return {
        "usual": seconds.usual,
        "peak": max(seconds.after),
        "by_usual": seconds.peak,
        "by_mean": max(seconds.after) / mean,
    }


def trace(name: str) -> Figures:
    from tests.support import virtual_model

    from headgate.client import Chat

    traced, kind, by = name.split(" | ")
    chosen = TRACES[traced]
    exchanges = [virtual_model.Exchange(*each) for each in islice(rows(chosen), MOST_EXCHANGES)]
    limits = virtual_model.Limits(getattr(virtual_model, COUNTERS[kind]), chosen.tokens, chosen.requests)
    usage = Chat() if by == BY_MEAN else Maximum(virtual_model.MAX_TOKENS)
    done = virtual_model.replay(exchanges, limits, usage, MINUTES)
    return {
        "used": 100 * done.share,
        "sent": done.report.sent,
        "refused": done.refused,
        "off": abs(done.report.units["tokens"] - done.counted),
    }


def rows(chosen: Trace) -> Iterator[tuple[int, int]]:
    found = [path for folder in ROOT.parents if (path := folder / "shared/data/traces" / chosen.file).exists()]
    if not found:
        raise MissingError(f"{chosen.file} is not there: the traces are not part of the package")
    with gzip.open(found[0], "rt", encoding="utf-8") as lines:
        for row in read(found[0], lines):
            yield int(row[chosen.prompt]), int(row[chosen.answer])


def read(path: Path, lines: Iterable[str]) -> Iterable[Mapping[str, Any]]:
    return map(json.loads, lines) if ".jsonl" in path.name else csv.DictReader(lines)


class Maximum:
    """Reserves the prompt and the most tokens that an answer may have."""

    def __init__(self, most: int) -> None:
        from headgate.client import Chat

        self._chat, self._most = Chat(), most

    def request(self, body: bytes | None) -> Any:
        return MaximumOf(self._chat.request(body), self._most)


class MaximumOf:
    """One request of it."""

    def __init__(self, request: Any, most: int) -> None:
        self.model, self.reader = request.model, request.reader
        entered = request.units["input_tokens"]
        self.units = {"tokens": entered + most, "input_tokens": entered, "output_tokens": most}


MEASURES: dict[str, Callable[[str], Figures]] = {"crowd back": crowd_back, "trace": trace}
