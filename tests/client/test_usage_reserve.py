"""Units to reserve: the prompt, and the mean of recent answers, at most the request's maximum."""

from __future__ import annotations

import json
import os
from typing import Any

import pytest

from headgate.client.usage import Chat, Usage, UsageReader, UsageRequest, chat
from headgate.client.usage.means import MOST_MODELS
from tests.support import side_by_side

pytestmark = pytest.mark.engineless

USER: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "x" * 400}]}


def request(chat: Usage, body: object) -> UsageRequest:
    return chat.request(json.dumps(body).encode())


def answered(chat: Usage, body: object, usage: dict[str, Any]) -> None:
    reader = request(chat, body).reader("application/json")
    reader.feed(json.dumps({"usage": usage}).encode())
    assert reader.close() is not None


def spoke(chat: Usage, tokens: int, model: str = "m") -> None:
    answered(chat, {**USER, "model": model}, {"prompt_tokens": 100, "completion_tokens": tokens})


def reserved(chat: Usage, **fields: object) -> tuple[int, int]:
    units = request(chat, {**USER, **fields}).units
    assert units["tokens"] == units["input_tokens"] + units["output_tokens"]
    return units["input_tokens"], units["output_tokens"]


def test_a_new_model_is_given_the_maximum_of_the_request():
    """Before the first answer nothing is known of a model; a request without a maximum reserves 1,000 tokens."""
    assert reserved(Chat()) == (100, 1_000)
    for name in ("max_tokens", "max_completion_tokens", "max_output_tokens", "max_tokens_to_sample"):
        assert reserved(Chat(), **{name: 64}) == (100, 64)
    assert reserved(Chat(), max_tokens=64, max_completion_tokens=32) == (100, 32)
    assert reserved(Chat(), max_tokens=0) == (100, 0)


def test_all_names_of_limits_are_given():
    """A budget has the limits that its provider has; a limit of another name is not charged."""
    units = {"tokens": 164, "input_tokens": 100, "output_tokens": 64, "cached_tokens": 0}
    assert request(Chat(), {**USER, "max_tokens": 64}).units == units


def test_recent_answers_are_averaged():
    """The first twenty answers count alike, then each new one for a twentieth; a fraction is rounded up."""
    usage = Chat()
    spoke(usage, 100)
    assert reserved(usage) == (100, 100)
    spoke(usage, 200)
    assert reserved(usage) == (100, 150)
    for _ in range(18):
        spoke(usage, 150)
    assert reserved(usage) == (100, 150)
    spoke(usage, 350)
    assert reserved(usage) == (100, 160)
    spoke(usage, 170)
    assert reserved(usage) == (100, 161)


def test_a_request_reserves_no_more_than_its_maximum():
    """The mean of a model that says more is cut; a larger maximum changes nothing."""
    usage = Chat()
    spoke(usage, 500)
    assert reserved(usage, max_tokens=64) == (100, 64)
    assert reserved(usage, max_tokens=64_000) == (100, 500)


def test_a_request_that_has_waited_reserves_by_the_answers_before_it():
    """A crowd that is there before the first answer would reserve its maximum, many times too much."""
    usage = Chat()
    waiting = request(usage, {**USER, "max_tokens": 4_096})
    assert waiting.units["tokens"] == 4_196
    spoke(usage, 30)
    assert waiting.units["tokens"] == 130


def test_models_are_averaged_apart():
    """A long answer of one model is not expected of another, nor of a request that names no model."""
    usage = Chat()
    spoke(usage, 500)
    assert reserved(usage, model="other") == (100, 1_000)
    assert reserved(usage, model=None) == (100, 1_000)
    spoke(usage, 30, "other")
    assert reserved(usage) == (100, 500)


def test_several_choices_are_several_answers():
    """`n` choices share one prompt; the mean and the maximum are of one choice."""
    usage = Chat()
    assert reserved(usage, n=3, max_tokens=50) == (100, 150)
    answered(usage, {**USER, "n": 3}, {"prompt_tokens": 100, "completion_tokens": 600})
    assert reserved(usage) == (100, 200)
    assert reserved(usage, n=2) == (100, 400)
    assert reserved(usage, n=2, max_tokens=50) == (100, 100)
    assert reserved(usage, n=0) == reserved(usage, n=-1) == reserved(usage, n="2") == (100, 200)
    assert reserved(usage, n=10**9) == (100, 128 * 200)


@pytest.mark.parametrize("cap", [-1, 1.5, True, "64", None, 10**12, [64], {}])
def test_a_maximum_that_is_no_count_is_none(cap):
    """A provider refuses such a request; until then it reserves as one without a maximum."""
    assert reserved(Chat(), max_tokens=cap) == (100, 1_000)


def test_the_memory_of_models_is_bounded():
    """A new model takes the place of the one that was not heard of for longest."""
    usage = Chat()
    for number in range(MOST_MODELS):
        spoke(usage, 5, f"m{number}")
    spoke(usage, 5, "m0")
    spoke(usage, 7, "new")
    assert [reserved(usage, model=model)[1] for model in ("new", "m0", "m1", "m2")] == [7, 5, 1_000, 5]
    assert request(usage, {"model": "m" * 257}).model is None


def test_means_of_threads_are_added_up():
    """Threads that finish at once each count: of a thousand equal answers, none is lost to another's."""
    usage = Chat()

    def work() -> None:
        for _ in range(125):
            spoke(usage, 80)

    with side_by_side([work] * 8):
        pass
    mean = usage._means.of("m")
    assert mean is not None and (mean.answers, mean.output) == (1_000, 80.0)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_forked_child_can_count():
    """A thread of the parent may hold the lock at the fork; the child has a new one."""
    usage = Chat()
    means = usage._means
    with means._lock:
        child = os.fork()
        if child == 0:
            os._exit(0 if means._lock.acquire(blocking=False) else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_cached_tokens_are_expected_to_be_cached_again():
    """Anthropic does not count them as input; OpenAI does, and a limit on cached tokens is charged for both."""
    anthropic, openai = Chat(), Chat()
    answered(anthropic, USER, {"input_tokens": 25, "cache_read_input_tokens": 75, "output_tokens": 9})
    details = {"prompt_tokens_details": {"cached_tokens": 75}}
    answered(openai, USER, {"prompt_tokens": 100, "completion_tokens": 9, **details})
    expected = {"tokens": 34, "input_tokens": 25, "output_tokens": 9, "cached_tokens": 75}
    assert request(anthropic, USER).units == expected
    assert request(openai, USER).units == {**expected, "tokens": 109, "input_tokens": 100}


def test_there_is_a_chat_for_all():
    """It needs no arguments, and knows the model of a body."""
    assert isinstance(chat, Chat)
    asked: UsageRequest = request(chat, {"model": "gpt-4o"})
    reader: UsageReader = asked.reader()
    assert (asked.model, reader.close()) == ("gpt-4o", None)
