"""Prompts: every text that a model reads is counted, and no body makes the count fail."""

from __future__ import annotations

import json
from typing import Any

import pytest

from headgate import InvalidCall
from headgate.client.usage import Chat, UsageRequest

pytestmark = pytest.mark.engineless


def request(chat: Chat, body: object) -> UsageRequest:
    return chat.request(json.dumps(body).encode())


def prompt(**body: object) -> int:
    return request(Chat(), body).units["input_tokens"]


def test_a_quarter_of_the_characters_is_rounded_up():
    """Characters are counted, not bytes; all texts together are rounded once."""
    assert [prompt(prompt="x" * length) for length in (0, 1, 4, 5)] == [0, 1, 1, 2]
    assert prompt(prompt="日本語で") == 1
    assert prompt(messages=[{"role": "user", "content": "x"}] * 8) == 2


@pytest.mark.parametrize(
    ("body", "tokens"),
    [
        ({"messages": [{"role": "system", "content": "x" * 8}, {"role": "user", "content": "x" * 8}]}, 4),
        ({"messages": [{"role": "user", "content": [{"type": "text", "text": "x" * 8}] * 2}]}, 4),
        ({"system": "x" * 8, "messages": []}, 2),
        ({"system": [{"type": "text", "text": "x" * 8, "cache_control": {"type": "ephemeral"}}]}, 2),
        ({"instructions": "x" * 8, "input": "x" * 8}, 4),
        ({"input": [{"role": "user", "content": [{"type": "input_text", "text": "x" * 8}]}]}, 2),
        ({"input": [{"type": "function_call_output", "call_id": "c", "output": "x" * 8}]}, 2),
        ({"input": ["x" * 4, "x" * 4]}, 2),
        ({"prompt": ["x" * 4, "x" * 4], "suffix": "x" * 4}, 3),
        ({"prompt": [1, 2, 3]}, 3),
        ({"input": [[1, 2], [3]]}, 3),
        ({"messages": [{"tool_calls": [{"id": "c", "function": {"name": "f" * 4, "arguments": "{}  "}}]}]}, 2),
        ({"messages": [{"content": [{"type": "tool_use", "id": "c", "name": "f" * 5, "input": {"a": 1}}]}]}, 3),
        ({"messages": [{"content": [{"type": "tool_result", "content": [{"text": "x" * 8}]}]}]}, 2),
        ({"messages": [{"content": [{"type": "thinking", "thinking": "x" * 8, "signature": "s"}]}]}, 2),
        ({"tools": [{"name": "f", "input_schema": {"type": "a"}}]}, 11),
        ({"functions": [{"name": "f" * 3}]}, 4),
        ({"response_format": {"type": "json_schema", "json_schema": {"a": "b" * 8}}}, 4),
        ({"text": {"format": {"type": "json_schema", "schema": {"a": "b" * 8}}}}, 4),
        ({"response_format": {"type": "text"}, "temperature": 0.5, "user": "x" * 80, "metadata": {"a": "x" * 80}}, 0),
    ],
)  # fmt: skip
def test_every_text_that_a_model_reads_is_counted(body, tokens):
    """Messages and their parts, system prompts, tools, calls of tools and their results, schemas; tokens are tokens."""
    assert prompt(**body) == tokens


@pytest.mark.parametrize(
    "part",
    [
        {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 100_000}},
        {"type": "input_image", "image_url": "data:image/png;base64," + "A" * 100_000},
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "A" * 100_000}},
        {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": "A" * 100_000}},
        {"type": "input_audio", "input_audio": {"data": "A" * 100_000, "format": "wav"}},
        {"type": "file", "file": {"file_data": "A" * 100_000}},
    ],
)
def test_an_image_is_a_thousand_tokens(part):
    """Its bytes say little about its tokens; files and sounds are the same number."""
    assert prompt(messages=[{"role": "user", "content": [part, {"type": "text", "text": "x" * 8}]}]) == 1_002


def test_a_document_of_text_is_text():
    """Anthropic takes documents as plain text, and as parts."""
    source: dict[str, Any] = {"type": "text", "media_type": "text/plain", "data": "x" * 8}
    assert prompt(messages=[{"role": "user", "content": [{"type": "document", "source": source}]}]) == 2
    source = {"type": "content", "content": [{"type": "text", "text": "x" * 8}]}
    assert prompt(messages=[{"role": "user", "content": [{"type": "document", "source": source}]}]) == 2


def test_a_counter_counts_the_texts():
    """It is given the texts in the order of the prompt, joined by line ends; images are added to its count."""
    given: list[str] = []

    def count(text: str) -> int:
        given.append(text)
        return 7

    content = [{"type": "text", "text": "two"}, {"type": "image_url", "image_url": {"url": "u"}}]
    body = {"system": "one", "messages": [{"role": "user", "content": content}, {"role": "user", "content": "three"}]}
    assert request(Chat(count), body).units["input_tokens"] == 1_007
    assert given == ["one\ntwo\nthree"]


@pytest.mark.parametrize("bad", [lambda _: 1 / 0, lambda _: -1, lambda _: "7", lambda _: None, lambda _: 2.5])
def test_a_counter_that_fails_is_replaced(bad, caplog):
    """A request is not lost to it: a quarter of the characters is reserved, and the log says so once."""
    usage, body = Chat(bad), {"prompt": "x" * 400}
    assert request(usage, body).units["input_tokens"] == request(usage, body).units["input_tokens"] == 100
    assert [record.message.partition(" gave ")[0] for record in caplog.records] == ["the counter of tokens"]


def test_wrong_arguments_are_told():
    """At once, and not at the first request."""
    with pytest.raises(InvalidCall, match="count must be a function of a text that returns its tokens; got 'cl100k'"):
        Chat("cl100k")
    with pytest.raises(InvalidCall, match="cached_count must be True, False or None; got 'no'"):
        Chat(cached_count="no")


@pytest.mark.parametrize(
    "body",
    [
        None,
        b"\x00\xff",
        b"--boundary\r\n",
        b"[]",
        b"3",
        b'"text"',
        b"{",
        b"[" * 100_000,
        b'{"n":' + b"9" * 5_000 + b"}",
    ],
)
def test_a_body_that_is_no_object_has_no_prompt(body):
    """A recording, say: it reserves as a model that is not known yet, whatever is in it."""
    asked = Chat().request(body)
    assert (asked.model, asked.units["input_tokens"], asked.units["output_tokens"]) == (None, 0, 1_000)


def test_no_body_asks_for_nothing():
    """A list of models costs no tokens."""
    assert set(Chat().request(b"").units.values()) == {0}


def test_a_body_that_is_too_long_is_not_read():
    """32 MB are the most that a provider takes, and a longer body would take long to parse."""
    assert Chat().request(b'{"model": "m", "input": "' + b"x" * (1 << 25) + b'"}').units["input_tokens"] == 0


@pytest.mark.parametrize("wrong", [7, True, None, {"type": ["image"]}, [[[{}]]], {"content": {"content": 7}}])
@pytest.mark.parametrize("name", ["messages", "system", "input", "prompt", "response_format", "text", "model"])
def test_a_field_of_another_type_is_ignored(name, wrong):
    """A provider refuses it; until then the rest of the prompt counts."""
    assert request(Chat(), {"instructions": "x" * 400, name: wrong}).units["input_tokens"] == 100


def test_a_prompt_may_be_nested_deeply():
    """As deeply as JSON can be read: parts in parts do not end in a recursion."""
    part: dict[str, Any] = {"text": "x" * 8}
    for _ in range(400):
        part = {"content": [part]}
    assert prompt(messages=[part]) == 2
