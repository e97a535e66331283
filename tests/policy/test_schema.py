"""The schema that editors use and the parser that servers use agree on what is right and what is wrong."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator
from typing import Any, get_args

import pytest

from headgate import LimitWarning
from headgate.errors import InvalidPolicy
from headgate.policy import Policy, header_fields, rule
from headgate.policy import policy_fields as policy
from headgate.policy.key import NAMED, WORDS
from headgate.policy.match import FIELDS, METHODS
from headgate.policy.schema import schema
from headgate.policy.secret import PLACES
from headgate.policy.shed_section import FIELDS as SHED_FIELDS
from headgate.policy.source import read_source
from headgate.policy.token import FIELDS as TOKEN_FIELDS
from headgate.policy.token import PUBLIC, SHARED
from headgate.policy.values import Repeated
from tests.policy.schema_cases import BEYOND, PUBLIC_KEY, RIGHT, WRONG
from tests.support import ROOT

pytestmark = pytest.mark.engineless

jsonschema = pytest.importorskip("jsonschema")
pytest.importorskip("jwt")
SCHEMA = json.loads(json.dumps(schema()))
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)
GALLERY = sorted((ROOT / "docs" / "gallery").glob("*.yaml"))


@pytest.fixture(autouse=True)
def _secrets(monkeypatch):
    monkeypatch.setenv("SCHEMA_SECRET", "s" * 64)
    monkeypatch.setenv("SCHEMA_KEY", PUBLIC_KEY)


def parses(value: Any) -> bool:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", LimitWarning)
            Policy(value) if isinstance(value, dict) else Policy.load(value)
    except InvalidPolicy:
        return False
    return True


def ids(value: Any) -> str:
    return json.dumps(value)[:70]


def test_the_schema_is_one():
    """Draft 2020-12 takes it."""
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    assert SCHEMA["$schema"] == "https://json-schema.org/draft/2020-12/schema"


@pytest.mark.parametrize("path", GALLERY, ids=lambda path: path.stem)
def test_the_gallery_is_right_for_both(path):
    """Every file of the gallery."""
    pytest.importorskip("yaml")
    assert parses(path)
    assert [error.message for error in VALIDATOR.iter_errors(read_source(path).value)] == []


@pytest.mark.parametrize("value", RIGHT, ids=ids)
def test_right_for_both(value):
    """The schema takes every policy that the parser takes."""
    assert parses(value)
    assert [error.message for error in VALIDATOR.iter_errors(value)] == []


@pytest.mark.parametrize("value", WRONG, ids=ids)
def test_wrong_for_both(value, tmp_path):
    """The schema refuses every policy that the parser refuses."""
    file = tmp_path / "policy.json"
    file.write_text(json.dumps(value), encoding="utf-8")
    assert not parses(file)
    assert not VALIDATOR.is_valid(value)


@pytest.mark.parametrize("value", BEYOND.values(), ids=BEYOND.keys())
def test_what_only_the_parser_finds(value):
    """The schema never refuses what the parser takes; a few mistakes are beyond it."""
    assert not parses(value)
    assert VALIDATOR.is_valid(value)


def test_the_schema_knows_the_fields_of_the_parser():
    """A field or a word that is added to one is missed in the other."""
    defined = SCHEMA["$defs"]
    assert tuple(SCHEMA["properties"]) == tuple(policy.FIELDS)
    assert tuple(SCHEMA["properties"]["tokens"]["properties"]) == tuple(TOKEN_FIELDS)
    assert tuple(SCHEMA["properties"]["shed"]["properties"]) == tuple(SHED_FIELDS)
    assert tuple(defined["secret"]["properties"]) == tuple(PLACES)
    assert tuple(defined["shared_algorithm"]["enum"]) == tuple(SHARED)
    assert tuple(defined["public_algorithm"]["enum"]) == PUBLIC
    assert tuple(defined["rule"]["properties"]) == tuple(rule.FIELDS)
    assert tuple(defined["condition"]["properties"]) == tuple(FIELDS)
    assert tuple(defined["style"]["enum"]) == header_fields.HEADER_STYLES
    assert tuple(defined["repeated"]["enum"]) == get_args(Repeated)
    assert tuple(defined["part"]["anyOf"][0]["enum"]) == WORDS
    assert tuple(defined["part"]["anyOf"][1]["properties"]) == tuple(NAMED)
    assert tuple(defined["costs"]["properties"]) == (*METHODS, "default", "after")


def test_every_field_is_described():
    """An editor shows a description beside every field."""
    assert [name for name, field in fields_of(SCHEMA) if "description" not in field] == []


def fields_of(schema: Any) -> Iterator[tuple[str, Any]]:
    """Every property anywhere in a schema, but for those of conditions that only look at them."""
    if isinstance(schema, list):
        for each in schema:
            yield from fields_of(each)
    elif isinstance(schema, dict):
        for name, value in schema.items():
            if name == "properties":
                yield from value.items()
            if name not in ("if", "then"):
                yield from fields_of(list(value.values()) if name == "properties" else value)
