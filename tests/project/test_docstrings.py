"""Docstrings of tests are read alone, as the specification: each is a plain sentence with a noun as its subject."""

from __future__ import annotations

import re

import pytest

from tests.project.test_architecture import TESTED, stated_in

pytestmark = pytest.mark.engineless

RIDDLE = re.compile(r"^(who|what|those who)\b|\b(whoever|whom|so many|as new)\b", re.IGNORECASE)
FRAGMENT = re.compile(r"^(And|Also|Nor|Or|Then)\b")
NOT_YET = {"test_retrying.py: test_a_ledger_of_failures"}
"""Tests whose docstrings still have such a word."""


@pytest.mark.parametrize(
    "stated",
    ["What is refused stays.", "Who comes late waits.", "So many are left.", "A key, whoever has it.", "It is as new."],
)
def test_riddles_are_found(stated):
    """A sentence whose subject has to be guessed is found by its words."""
    assert RIDDLE.search(stated)


def test_every_docstring_of_a_test_has_a_noun_as_its_subject():
    """A docstring does not begin with a pronoun for an unknown thing, nor as the rest of the name of its test."""
    riddles = {
        f"{path.name}: {test.name}"
        for path in TESTED
        for test in stated_in(path)
        if RIDDLE.search(test.docstring) or FRAGMENT.match(test.docstring)
    }
    assert riddles - NOT_YET == set()
