"""Readers of response bodies: JSON, or a stream of events. Each keeps a bounded part of the bytes and never raises."""

from __future__ import annotations

import codecs
from typing import Any, Final, Protocol

from headgate.client.usage.bounded_bytes import BoundedBytes
from headgate.client.usage.json_text import object_in, parsed, usage_at_end, whole
from headgate.client.usage.tokens import CACHE_FIELDS, Tokens, told_tokens

RESPONSE_ENDS: Final = frozenset({"response.completed", "response.incomplete", "response.failed"})
"""The last events of OpenAI's responses; no `[DONE]` follows them."""
ENDS_OF_LINES: Final = (b"\n", b"\r")


class ResponseBody(Protocol):
    """The bytes of an answer, and the tokens in them."""

    def feed(self, chunk: bytes) -> None:
        """Look at the next bytes."""

    def tokens(self) -> Tokens | None:
        """Return the tokens that the bytes tell, if they are complete."""


class UnknownBody:
    """An answer of another kind, such as speech: its bytes are not kept."""

    def feed(self, chunk: bytes) -> None:
        """Ignore the bytes."""

    def tokens(self) -> Tokens | None:
        """Return None."""
        return None


class JsonBody:
    """A JSON body with a `usage`. Of a long body, as of many embeddings, only the end is kept."""

    def __init__(self) -> None:
        self._kept = BoundedBytes()

    def feed(self, chunk: bytes) -> None:
        """Keep the bytes."""
        self._kept.add(chunk)

    def tokens(self) -> Tokens | None:
        """Return the tokens in `usage`; a body that was cut short is no JSON."""
        body = usage_at_end(self._kept.data, b"{") if self._kept.cut else parsed(self._kept.data)
        return told_tokens(object_in(body, "usage"))


class EventStreamBody:
    """A stream of events, `text/event-stream`, of OpenAI's chat, its completions, its responses, or Anthropic."""

    def __init__(self) -> None:
        self._line, self._data = BoundedBytes(), BoundedBytes()
        self._name = ""
        self._after_return = False
        self._begun = False
        self._usage: dict[str, Any] = {}
        self._ended = False

    def feed(self, chunk: bytes) -> None:
        """Read the lines that have ended, and keep the rest."""
        if self._after_return and chunk.startswith(b"\n"):
            chunk = chunk[1:]
            self._after_return = False
        if not chunk:
            return
        self._after_return = chunk.endswith(b"\r")
        for line in chunk.splitlines(keepends=True):
            self._line.add(line)
            if line.endswith(ENDS_OF_LINES):
                self._read_line()

    def tokens(self) -> Tokens | None:
        """Return the tokens that the last events tell; None if the stream ended without its last event."""
        self._read_line()
        self._read_event()
        return told_tokens(self._usage) if self._ended else None

    def _read_line(self) -> None:
        line, self._line = self._line, BoundedBytes()
        start = line.head if line.cut else bytes(line.data)
        if not self._begun:
            self._begun, start = True, start.removeprefix(codecs.BOM_UTF8)
        text = start.rstrip(b"\r\n")
        field, _, value = text.partition(b":")
        if not text:
            self._read_event()
        elif field == b"event":
            self._name = value[:64].strip().decode("latin-1")
        elif field != b"data":
            return
        elif line.cut:
            self._data = line
        else:
            if self._data.data:
                self._data.add(b"\n")
            self._data.add(value.removeprefix(b" "))

    def _read_event(self) -> None:
        (data, self._data), (name, self._name) = (self._data, BoundedBytes()), (self._name, "")
        text = data.data
        if data.cut:
            if name in RESPONSE_ENDS:
                self._end_response(usage_at_end(text, b'{"response":{'))
        elif text.strip() == b"[DONE]":
            self._ended = True
        elif b'"usage"' in text or b'"message_stop"' in text:  # other events are not parsed
            self._read_object(parsed(text))

    def _read_object(self, event: dict[str, Any]) -> None:
        kind = event.get("type")
        if kind == "message_stop":
            self._ended = True
        elif kind == "message_start":
            self._add_anthropic(object_in(object_in(event, "message"), "usage"))
        elif kind == "message_delta":
            self._add_anthropic(object_in(event, "usage"))
        elif isinstance(kind, str):
            if kind in RESPONSE_ENDS:
                self._end_response(event)
        elif usage := object_in(event, "usage"):
            self._usage = usage
            self._ended = self._ended or event.get("choices") == []  # some servers tell the usage so far in every event

    def _end_response(self, event: dict[str, Any]) -> None:
        self._usage = object_in(object_in(event, "response"), "usage")
        self._ended = True

    def _add_anthropic(self, usage: dict[str, Any]) -> None:
        """Counts are cumulative. Some gateways tell 0 at the start and the input at the end."""
        for field in ("input_tokens", "output_tokens", *CACHE_FIELDS):
            if (told := whole(usage.get(field))) is not None:
                self._usage[field] = max(told, whole(self._usage.get(field)) or 0)
