"""Fields of a policy: the purpose and the allowed values of each. The parser uses their names; the schema is generated
from them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from headgate.algorithms import ALGORITHMS
from headgate.clock import DAY
from headgate.limit import DATES, UNITS

Form = dict[str, Any]
"""The values that are allowed in one place, as JSON Schema."""
Path_ = tuple[str | int, ...]
"""The path to a value: ("rules", 0, "match", "path")."""


class Field(NamedTuple):
    """One field."""

    about: str
    """The description that an editor shows."""
    form: Form


Fields = Mapping[str, Field]

TEXT: Final[Form] = {"type": "string"}
WORD: Final[Form] = {"type": "string", "minLength": 1}


def table(fields: Fields, *needed: str, one: bool = False) -> Form:
    """An object with these fields and no others; with `one`, exactly one of them."""
    form: Form = {"type": "object"}
    if needed:
        form["required"] = list(needed)
    if one:
        form |= {"minProperties": 1, "maxProperties": 1}
    properties = {name: {"description": field.about, **field.form} for name, field in fields.items()}
    return form | {"additionalProperties": False, "properties": properties}


def names_to(form: Form) -> Form:
    """An object with any names, each with a value of this form."""
    return {"type": "object", "minProperties": 1, "additionalProperties": form}


def array(form: Form) -> Form:
    """A list of at least one value."""
    return {"type": "array", "minItems": 1, "items": form}


def some(form: Form) -> Form:
    """One value, or a list of them."""
    return {"anyOf": [form, array(form)]}


def one_of(words: Iterable[str]) -> Form:
    """One of a few words."""
    return {"enum": list(words)}


def named(name: str) -> Form:
    """A reference to a form that several places of the schema use."""
    return {"$ref": f"#/$defs/{name}"}


def time(**least: float) -> Form:
    """A time such as `10m`, or a number of seconds from the least."""
    return {"anyOf": [named("time"), {"type": "number", **least, "maximum": 100_000_000}]}


def any_case(*words: str) -> str:
    """A pattern for words in any case: JSON Schema has no flag for that."""
    cased = ["".join(f"[{sign.upper()}{sign.lower()}]" if sign.isalpha() else sign for sign in word) for word in words]
    return cased[0] if len(cased) == 1 else f"(?:{'|'.join(cased)})"


# Patterns for the grammar in limit.grammar

NAME: Final = "[A-Za-z][A-Za-z0-9_.-]{0,63}"
_NUMBER: Final = "(?=[0-9_]*[1-9])[0-9][0-9_]*"
PERIOD: Final = rf"(?:{_NUMBER})?\s*{any_case(*sorted(UNITS, key=len, reverse=True))}"
_AMOUNT: Final = "[0-9][0-9_]*"
_ZONE: Final = "(?![Ff][Ll][Ii][Gg][Hh][Tt])[A-Za-z][A-Za-z0-9_+/-]*"
_DATES: Final = sorted(
    [*(unit for unit, name in DATES.items() if name != "quarter"), *(unit for unit, us in UNITS.items() if us >= DAY)],
    key=len,
    reverse=True,
)
_DATED: Final = rf"(?:[0_]*1)?\s*{any_case(*_DATES)}"


def limits_pattern() -> str:
    """A pattern for limits in words."""
    whole = [any_case(name) for name, algorithm in ALGORITHMS.items() if not algorithm.slots]
    whole.insert(0, rf"{any_case('fixed-window')}\s+{any_case('scattered')}")
    parted = [rf"{any_case(name)}(?:/0*[1-9][0-9]*)?" for name, algorithm in ALGORITHMS.items() if algorithm.slots]
    clauses = "|".join((
        rf"{any_case('burst', 'queue')}\s+{_NUMBER}",
        rf"{any_case('by')}\s+(?:{'|'.join(whole + parted)})",
        rf"{any_case('block')}\s+{PERIOD}(?:\s*,\s*{PERIOD}){{0,6}}(?:\s+{any_case('within')}\s+{PERIOD})?",
        rf"{any_case('as')}\s+{NAME}",
    ))  # fmt: skip
    dated = rf"{any_case('in')}\s+{_ZONE}|{any_case('from')}\s+[A-Za-z]*{any_case('day')}"
    periods = rf"(?:{PERIOD}(?:\s+(?:{clauses}))*|{_DATED}(?:\s+(?:{clauses}|{dated}))*)"
    rate = rf"{_AMOUNT}\s*(?:/|{any_case('per')}(?=[\s0-9]))\s*{periods}"
    holds = rf"{any_case('ttl')}\s+{PERIOD}|{any_case('per', 'as')}\s+{NAME}"
    in_flight = rf"{_AMOUNT}\s*{any_case('in')}(?:\s+|-){any_case('flight')}(?:\s+(?:{holds}))*"
    limit = f"(?:{rate}|{in_flight})"
    return rf"^[\s;]*{limit}\s*(?:;[\s;]*{limit}\s*)*[\s;]*$"
