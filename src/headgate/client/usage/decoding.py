"""Compressed answers: a transport sees the bytes of the network, which `gzip` and `deflate` may have compressed."""

from __future__ import annotations

import zlib
from typing import Final

from headgate.client.usage.bodies import ResponseBody, UnknownBody
from headgate.client.usage.tokens import Tokens

PIECE: Final = 1 << 16
MOST_DECODED: Final = 1 << 28
"""Of an answer that expands beyond this, no more is decompressed: it is a bomb, or too large to be read twice."""
EITHER_HEADER: Final = 47
"""zlib's word for: gzip or zlib, told by the first bytes."""


class DecompressedBody:
    """An answer that is decompressed in small pieces. Bytes that cannot be decompressed leave it incomplete."""

    def __init__(self, answer: ResponseBody) -> None:
        self._answer = answer
        self._decoder = zlib.decompressobj(EITHER_HEADER)
        self._left = MOST_DECODED
        self._failed = False

    def feed(self, chunk: bytes) -> None:
        """Decompress the bytes, and look at the result."""
        while chunk and not self._failed and not self._decoder.eof:
            try:
                piece = self._decoder.decompress(chunk, PIECE)
            except zlib.error:
                self._failed = True
                return
            self._left -= len(piece)
            self._failed = self._left < 0
            chunk = self._decoder.unconsumed_tail
            self._answer.feed(piece)

    def tokens(self) -> Tokens | None:
        """Return the tokens in the decompressed bytes, if all of them could be decompressed."""
        return None if self._failed else self._answer.tokens()


def decoded(answer: ResponseBody, content_encoding: str) -> ResponseBody:
    """Return a reader that decompresses bytes for `answer`, or one that keeps none if the coding is not known."""
    coding = content_encoding.strip().lower()
    if coding in ("", "identity"):
        return answer
    return DecompressedBody(answer) if coding in ("gzip", "x-gzip", "deflate") else UnknownBody()
