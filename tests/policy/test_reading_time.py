"""How long reading takes: in proportion to the text, however hostile it is."""

from __future__ import annotations

import logging
from itertools import islice

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.readers import POLICIES, READERS, SIZE, SIZES, Text, is_linear, texts

pytestmark = pytest.mark.engineless

MOST_TEXTS = 60
"""Of each reader, evenly chosen; `make soak` reads all of them."""
ONCE_SLOW = [
    ("host", Text("", "-", "")),
    ("host", Text("", "a-", ".preview.example.org")),
    ("limit", Text("1/", " ", "")),
    ("limit", Text("1 per ", " ", "!")),
    ("period", Text("", " ", "")),
    ("period", Text("", "1", " m s")),
    ("period", Text("", "1_", " m s")),
    ("content type", Text("", "/", "\0")),
    ("content type", Text("a/", ";", "\0")),
    ("rule content type", Text("", "/", "\0")),
    ("toml", Text("a.", "a.", "a = 1")),
    ("yaml", Text("", "[ ", "")),
    ("yaml", Text("a: 1", ":1", "")),
]


@pytest.fixture(autouse=True)
def _quiet():
    """Some of them log what they cannot read."""
    logging.disable()
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize(("name", "text"), ONCE_SLOW)
def test_what_once_took_the_square_of_a_text_does_so_no_more(name, text):
    """Each of these stopped a server, or a reload, for seconds."""
    assert is_linear(READERS[name].read, text, READERS[name].size)


@pytest.mark.parametrize("name", READERS)
def test_no_reader_takes_more_than_a_constant_for_each_character(name):
    """Of paths, hosts, header fields, tokens, limits, URLs and files: marks and pairs of marks, again and again."""
    reader = READERS[name]
    every = list(texts(reader))
    for text in islice(every, 0, None, -(-len(every) // MOST_TEXTS)):
        assert is_linear(reader.read, text, reader.size), text


@pytest.mark.parametrize("name", POLICIES)
def test_no_policy_takes_more_than_a_constant_for_each_of_its_fields(name):
    """Right ones and wrong ones: mistakes are found, and told, in the same time."""
    read, grown = POLICIES[name]
    assert is_linear(read, grown, SIZES.get(name, SIZE))


@settings(max_examples=60)
@given(st.sampled_from([name for name in READERS if name != "yaml"]), st.data())
def test_no_text_that_chance_builds_takes_more_either(name, data):
    """A beginning, something again and again, and an end, all of what the reader knows."""
    reader = READERS[name]
    words = st.text(st.sampled_from(reader.marks), max_size=4)
    start = data.draw(st.sampled_from(reader.samples)) + data.draw(words)
    again = data.draw(st.text(st.sampled_from(reader.marks), min_size=1, max_size=4))
    text = Text(start, again, data.draw(words))
    assert is_linear(reader.read, text, reader.size), text
