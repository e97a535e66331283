"""A server of language models on loopback: it speaks as OpenAI and Anthropic do, counts tokens, streams and refuses.

A prompt has a quarter of its characters as tokens. The last words of a message say what to answer: "answer 37" is 37
tokens, "answer 37 cut 5" loses the connection after 5 of them.
"""

from __future__ import annotations

import gzip
import json
import re
import threading
from collections import Counter
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

WISH = re.compile(r"answer (\d+)(?: cut (\d+))?")


class ModelServer(ThreadingHTTPServer):
    """What was asked, and what was used."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.requests: list[dict[str, str]] = []
        """The header fields of every request."""
        self.used: Counter[str] = Counter()
        """Tokens of answers that were sent up to their last event, or whole."""
        self.refusals: list[tuple[int, dict[str, str]]] = []
        """Answers to give first, in place of the model's."""
        self.limits: dict[str, str] = {}
        """Header fields of every answer."""
        self.zipped = False
        self.bodies: list[bytes] = []
        """The bodies of answers, as they were sent."""
        self._lock = threading.Lock()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def next_refusal(self) -> tuple[int, dict[str, str]] | None:
        with self._lock:
            return self.refusals.pop(0) if self.refusals else None

    def count(self, entered: int, left: int) -> None:
        with self._lock:
            self.used.update({"input_tokens": entered, "output_tokens": left, "tokens": entered + left})


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: ModelServer

    def log_message(self, *args: Any) -> None:
        """Nothing."""

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.requests.append({name.lower(): value for name, value in self.headers.items()})
        refusal = self.server.next_refusal()
        if refusal is not None:
            status, fields = refusal
            self._send(json.dumps({"error": {"message": "slow down", "type": "rate_limit"}}).encode(), fields, status)
            return
        text = "".join(each["content"] for each in asked["messages"])
        wish = WISH.search(text)
        assert wish is not None
        entered, left, cut = len(text) // 4, int(wish[1]), int(wish[2] or 0)
        speak = _openai if self.path.endswith("/chat/completions") else _anthropic
        if not asked.get("stream"):
            self.server.count(entered, left)
            self._send(json.dumps(speak(asked, entered, left)).encode(), {"Content-Type": "application/json"})
            return
        events = list(_STREAMS[speak](asked, entered, left))
        if cut:
            self._begin_stream(events[:cut])
            self._write(events[:cut])
            self.close_connection = True
            return
        self._begin_stream(events)
        self._write(events[:-1])
        self.server.count(entered, left)  # before the client can have read the end, and compares
        self._write(events[-1:])
        self.wfile.write(b"0\r\n\r\n")

    def _send(self, body: bytes, fields: dict[str, str], status: int = 200) -> None:
        self.send_response(status)
        if self.server.zipped:
            body = gzip.compress(body)
            fields = {**fields, "Content-Encoding": "gzip"}
        self.server.bodies.append(body)
        for name, value in {**self.server.limits, **fields, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def _begin_stream(self, events: list[bytes]) -> None:
        self.send_response(200)
        for name, value in {**self.server.limits, "Content-Type": "text/event-stream; charset=utf-8"}.items():
            self.send_header(name, value)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.server.bodies.append(b"".join(events))

    def _write(self, events: list[bytes]) -> None:
        for event in events:
            self.wfile.write(b"%x\r\n%s\r\n" % (len(event), event))


def _openai(asked: dict[str, Any], entered: int, left: int) -> dict[str, Any]:
    message = {"role": "assistant", "content": "word " * left}
    return {
        "id": "c1",
        "object": "chat.completion",
        "created": 1,
        "model": asked["model"],
        "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": entered, "completion_tokens": left, "total_tokens": entered + left},
    }


def _openai_stream(asked: dict[str, Any], entered: int, left: int) -> Iterator[bytes]:
    whole = _openai(asked, entered, left)
    common = {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": asked["model"]}
    for _ in range(left):
        choice = {"index": 0, "delta": {"content": "word "}, "finish_reason": None}
        yield _event(None, {**common, "choices": [choice]})
    if (asked.get("stream_options") or {}).get("include_usage"):
        yield _event(None, {**common, "choices": [], "usage": whole["usage"]})
    yield b"data: [DONE]\n\n"


def _anthropic(asked: dict[str, Any], entered: int, left: int) -> dict[str, Any]:
    return {
        "id": "m1",
        "type": "message",
        "role": "assistant",
        "model": asked["model"],
        "content": [{"type": "text", "text": "word " * left}],
        "stop_reason": "end_turn",
        "stop_sequence": None,
        "usage": {"input_tokens": entered, "output_tokens": left},
    }


def _anthropic_stream(asked: dict[str, Any], entered: int, left: int) -> Iterator[bytes]:
    begun = {**_anthropic(asked, entered, 1), "content": [], "stop_reason": None}
    yield _event("message_start", {"message": begun})
    yield _event("content_block_start", {"index": 0, "content_block": {"type": "text", "text": ""}})
    for _ in range(left):
        yield _event("content_block_delta", {"index": 0, "delta": {"type": "text_delta", "text": "word "}})
    yield _event("content_block_stop", {"index": 0})
    stop = {"stop_reason": "end_turn", "stop_sequence": None}
    yield _event("message_delta", {"delta": stop, "usage": {"output_tokens": left}})
    yield _event("message_stop", {})


def _event(kind: str | None, data: dict[str, Any]) -> bytes:
    named = f"event: {kind}\n" if kind else ""
    if kind:
        data = {"type": kind, **data}
    return f"{named}data: {json.dumps(data)}\n\n".encode()


_STREAMS = {_openai: _openai_stream, _anthropic: _anthropic_stream}
