"""Header blocks: what is read once is what a plain decoder reads each time."""

from __future__ import annotations

import random
from typing import Any

import hpack
import pytest

from headgate.edge.envoy import blocks
from headgate.edge.envoy.blocks import LONGEST, MOST, Blocks

pytestmark = pytest.mark.engineless
FIRST = bytes.fromhex(
    "8304ab60b5773fa5d05b3b98855ec1a4b41a93257eecafb4692e735264ee2d9dcc42b1ba73db449b4692e735264f"
    "41869ca39261a4bf8640027465864d833505b11f40899acac8b24d494f6a7f84080000535f8b1d75d0620d263d4c4d6564"
)
"""The first block of an Envoy: path without indexing, then fields that are added to the table."""
LATER = FIRST[:46] + bytes.fromhex("c186c0bfbe")
"""The same fields in every later block."""


class Counting(hpack.Decoder):
    """A decoder that tells how often it was needed."""

    decoded = 0

    def decode(self, *arguments: Any, **options: Any) -> Any:
        """Decode a block."""
        Counting.decoded += 1
        return super().decode(*arguments, **options)


def test_the_blocks_of_an_envoy_are_read_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first, which adds to the table, and one of those that follow, although each has the path in full."""
    monkeypatch.setattr(blocks, "Decoder", Counting)
    monkeypatch.setattr(Counting, "decoded", 0)
    made = Blocks()
    found = [made.fields(FIRST), *(made.fields(LATER) for _ in range(100))]
    assert Counting.decoded == 2
    assert all(each == found[0] for each in found)
    assert found[0][b":path"] == b"/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit"
    assert (found[0][b":authority"], found[0][b"content-type"]) == (b"headgate", b"application/grpc")


def fields_of(chance: random.Random) -> list[tuple[str, str]]:
    """Some header fields, of which many come again."""
    names = ["x-a", "x-b", ":path", "content-type", "n" * chance.choice((1, 130))]
    return [(chance.choice(names), "v" * chance.choice((0, 1, 2, 126, 127, 128, 400))) for _ in range(3)]


def spelled(fields: list[tuple[str, str]], first: int) -> bytes:
    """A block whose fields are not added to the table: names and values as they are."""
    parts = []
    for name, value in fields:
        parts.append(bytes([first]))
        for text in (name.encode(), value.encode()):
            length = bytes([len(text)]) if len(text) < 127 else b"\x7f" + _rest(len(text) - 127)
            parts.append(length + text)
    return b"".join(parts)


def _rest(number: int) -> bytes:
    return bytes([number]) if number < 128 else bytes([number % 128 + 128]) + _rest(number // 128)


@pytest.mark.parametrize("seed", range(20))
def test_every_block_means_what_a_plain_decoder_reads(seed: int) -> None:
    """Blocks that point into the table, spell fields out, add to it, push others out or resize it, many twice."""
    chance, plain, made, encoder = random.Random(seed), hpack.Decoder(), Blocks(), hpack.Encoder()
    sent: list[bytes] = []
    for _ in range(600):
        how = chance.randrange(12)
        if how == 0:
            encoder.header_table_size = chance.choice((0, 60, 200, 4096))
        if how < 4:
            block = bytes(encoder.encode(fields_of(chance), huffman=chance.random() < 0.5))
        elif how < 7 or not sent:
            block = spelled(fields_of(chance), chance.choice((0x00, 0x10)))
        elif how < 9:
            entries = 61 + len(plain.header_table.dynamic_entries)
            block = bytes(0x80 | chance.randrange(1, min(entries, 126) + 1) for _ in range(3))
            block += spelled(fields_of(chance)[:1], 0x00)
        else:
            block = chance.choice(sent[-8:])
        try:
            expected = dict(plain.decode(block, raw=True))
        except hpack.HPACKError:  # a block that came before points beyond a table that is smaller now
            with pytest.raises(blocks.Failed):
                made.fields(block)
            return
        assert made.fields(block) == expected
        sent.append(block)


def test_few_and_short_blocks_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """A peer that sends ever other blocks, or long ones, fills no memory: they are read again."""
    monkeypatch.setattr(blocks, "Decoder", Counting)
    monkeypatch.setattr(Counting, "decoded", 0)
    made = Blocks()
    every = [spelled([("x-a", str(number))], 0x00) for number in range(MOST + 1)]
    for block in [*every, every[0], spelled([("x-a", "v" * LONGEST)], 0x00), spelled([("x-a", "v" * LONGEST)], 0x00)]:
        made.fields(block)
    assert Counting.decoded == MOST + 4
