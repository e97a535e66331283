"""Kernels for servers: files in Lua or SQL with sections of code between `---` lines, and words to be filled in."""

from __future__ import annotations

import re
from importlib import resources
from typing import Final, NamedTuple

from headgate.algorithms import EXACT, NEVER, UNKNOWN
from headgate.layout import ANSWER_FIELDS, FRACTION_BITS, UNIT_BITS

NUMBERS: Final = {
    "NEVER": str(NEVER), "UNKNOWN": str(UNKNOWN), "FINEST": str(1 << FRACTION_BITS), "UNITS": str(1 << UNIT_BITS),
    "FIELDS": "<" + "i8" * ANSWER_FIELDS, "EXACT": str(EXACT),
}  # fmt: skip
"""The constants that are filled into every file."""


class Sections(NamedTuple):
    """The parts of a file."""

    heads: dict[str, str]
    """The value of each line `--- name value`."""
    codes: dict[str, str]
    """The code under each line `--- name`, without comments."""


def read_text(package: str, file: str) -> str:
    """Return a file of a package, with its numbers."""
    return fill(resources.files(package).joinpath(file).read_text("utf-8"), **NUMBERS)


def read_sections(package: str, file: str) -> Sections:
    """Return the sections of a file of a package."""
    text = read_text(package, file)
    heads = dict(re.findall(r"^--- (\w+) (.+)$", text, re.MULTILINE))
    parts = re.split(r"^--- (\w+)(?: .+)?\n", text, flags=re.MULTILINE)
    codes = [re.sub(r"^\s*--[^\n]*\n", "", code, flags=re.MULTILINE).strip() for code in parts[2::2]]
    return Sections(heads, dict(zip(parts[1::2], codes, strict=True)))


def fill(template: str, **words: str) -> str:
    """Replace words in capitals by their text, also in `KIND_read` and `ends_INDEX`."""
    return re.sub(r"(?<![A-Z])[A-Z]+(?:_TO)?(?![A-Z])", lambda found: words.get(found[0], found[0]), template)
