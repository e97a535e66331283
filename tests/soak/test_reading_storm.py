"""Hostile texts for as long as SOAK_SECONDS says: every family of every reader, then what chance builds."""

from __future__ import annotations

import logging
import random
import time

import pytest

from tests.support.readers import READERS, Reader, Text, is_linear, texts
from tests.support.soaking import SECONDS, fresh_seed

pytestmark = pytest.mark.soak


def chosen(reader: Reader, chance: random.Random) -> Text:
    def some(least: int) -> str:
        return "".join(chance.choice(reader.marks) for _ in range(chance.randrange(least, 7)))

    return Text(chance.choice(reader.samples) + some(0), some(1), some(0))


@pytest.mark.parametrize("name", READERS)
def test_no_text_takes_more_than_a_constant_for_each_of_its_characters(name):
    """All marks and pairs of them, then longer pieces; a failure names its text."""
    logging.disable()
    try:
        reader, end = READERS[name], time.monotonic() + SECONDS / 8
        for text in texts(reader):
            assert is_linear(reader.read, text, reader.size), text
            if time.monotonic() > end:
                break
        seed = fresh_seed()
        chance = random.Random(seed)
        while time.monotonic() < end:
            text = chosen(reader, chance)
            assert is_linear(reader.read, text, reader.size), (seed, text)
    finally:
        logging.disable(logging.NOTSET)
