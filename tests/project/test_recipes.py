"""The recipes: short, public, and each with a claim that the tests of the documentation check."""

from __future__ import annotations

import re

import pytest

from tests.project.test_docs import LINK, arrows_in, blocks_of, name_of
from tests.support import ROOT

pytestmark = pytest.mark.engineless

RECIPES = ROOT / "docs" / "recipes"
PAGES = sorted(set(RECIPES.glob("*.md")) - {RECIPES / "index.md"})
LONGEST = 25
"""Lines of a program, without empty ones. A second block may try the program out."""


def test_there_are_twenty_recipes_and_the_list_has_each_once():
    """A reader who looks for a question finds every recipe in one table."""
    listed = LINK.findall((RECIPES / "index.md").read_text(encoding="utf-8"))
    assert len(PAGES) == 20
    assert sorted(listed) == [page.name for page in PAGES]


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_a_recipe_is_one_short_program_of_public_names(page):
    """At most 25 lines, no name that begins with an underscore, and at least one value that is checked."""
    blocks = blocks_of(page)
    assert sum(bool(line.strip()) for line in blocks[0].splitlines()) <= LONGEST
    assert re.findall(r"(?:\.|import |\s)_[a-z]\w*", "\n".join(blocks)) == []
    assert sum(len(arrows_in(block)) for block in blocks) > 0
