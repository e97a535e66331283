"""Fields of a policy: what each is for and what may stand there. The parser goes by their names, the schema is made of
them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from headgate.algorithms import ALGORITHMS
from headgate.limit.grammar import UNITS

Form = dict[str, Any]
"""What may stand somewhere, in the words of JSON Schema."""


class Field(NamedTuple):
    """One field."""

    about: str
    """What an editor shows beside it."""
    form: Form


Fields = Mapping[str, Field]

TEXT: Final[Form] = {"type": "string"}
WORD: Final[Form] = {"type": "string", "minLength": 1}


def table(fields: Fields, *needed: str, one: bool = False) -> Form:
    """These fields and no others; of some exactly one."""
    form: Form = {"type": "object"}
    if needed:
        form["required"] = list(needed)
    if one:
        form |= {"minProperties": 1, "maxProperties": 1}
    properties = {name: {"description": field.about, **field.form} for name, field in fields.items()}
    return form | {"additionalProperties": False, "properties": properties}


def names_to(form: Form) -> Form:
    """Any names, each with such a value."""
    return {"type": "object", "minProperties": 1, "additionalProperties": form}


def array(form: Form) -> Form:
    """At least one."""
    return {"type": "array", "minItems": 1, "items": form}


def some(form: Form) -> Form:
    """One, or a list of them."""
    return {"anyOf": [form, array(form)]}


def one_of(words: Iterable[str]) -> Form:
    """One of a few words."""
    return {"enum": list(words)}


def named(name: str) -> Form:
    """A form that the schema has under a name, as it is needed in several places."""
    return {"$ref": f"#/$defs/{name}"}


def time(**least: float) -> Form:
    """`10m`, or seconds from the least on."""
    return {"anyOf": [named("time"), {"type": "number", **least, "maximum": 100_000_000}]}


def any_case(*words: str) -> str:
    """A pattern of words in capitals or not, which JSON Schema has no flag for."""
    cased = ["".join(f"[{sign.upper()}{sign.lower()}]" if sign.isalpha() else sign for sign in word) for word in words]
    return cased[0] if len(cased) == 1 else f"(?:{'|'.join(cased)})"


# Patterns of what limit.grammar reads

NAME: Final = "[A-Za-z][A-Za-z0-9_.-]{0,63}"
_NUMBER: Final = "(?=[0-9_]*[1-9])[0-9][0-9_]*"
PERIOD: Final = rf"(?:{_NUMBER})?\s*{any_case(*sorted(UNITS, key=len, reverse=True))}"


def limits_pattern() -> str:
    """Limits in words."""
    whole = [any_case(name) for name, algorithm in ALGORITHMS.items() if not algorithm.slots]
    parted = [rf"{any_case(name)}(?:/0*[1-9][0-9]*)?" for name, algorithm in ALGORITHMS.items() if algorithm.slots]
    clauses = "|".join((
        rf"{any_case('burst', 'queue')}\s+{_NUMBER}",
        rf"{any_case('by')}\s+(?:{'|'.join(whole + parted)})",
        rf"{any_case('block')}\s+{PERIOD}",
        rf"{any_case('as')}\s+{NAME}",
    ))  # fmt: skip
    rate = rf"{_NUMBER}\s*(?:/|{any_case('per')}(?=[\s0-9]))\s*{PERIOD}(?:\s+(?:{clauses}))*"
    holds = rf"{any_case('ttl')}\s+{PERIOD}|{any_case('per', 'as')}\s+{NAME}"
    in_flight = rf"{_NUMBER}\s*{any_case('in')}(?:\s+|-){any_case('flight')}(?:\s+(?:{holds}))*"
    limit = f"(?:{rate}|{in_flight})"
    return rf"^[\s;]*{limit}\s*(?:;[\s;]*{limit}\s*)*[\s;]*$"
