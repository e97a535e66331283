"""Lines in TOML files, whose parser tells none."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.errors import InvalidPolicy
from headgate.policy import Policy
from headgate.policy.lines import lines_of

pytestmark = pytest.mark.engineless

MISTAKEN = '''\
version = 2
namespace = 7 # '[[rules]]'
stores.fleet = 7

[plan]
header = "x-plan"

[[rules]]
key = "ipp"
limits = [
    "5/minute", # [[rules]]
    """
[[rules]]
""",
]

  [[ rules ]]
  "key" = {param = "id"}
  limits.default = "1/minute"
  limits.'pro' = "10/minuet"
  [rules.match]
  pth = "/"
  [rules.match.not]
  ip = "10.0.0.300"

[[rules]]
limits = "1/minute"
act.shadow.status = 99
cost = {default = -1, after = {status = {6xx = 1}}}
'''


def said(folder: Path, text: str) -> list[str]:
    file = folder / "policy.toml"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(InvalidPolicy) as raised:
        Policy.load(file)
    return [mistake.partition("; ")[0] for mistake in raised.value.mistakes]  # the advice is another test's


def test_every_mistake_in_a_toml_file_has_its_line(tmp_path):
    """In tables, lists of tables, inline tables and dotted keys; in the order of the file."""
    words = "ip, user, plan, host, method, path, route, everyone"
    assert said(tmp_path, MISTAKEN) == [
        "policy.toml:1: version: this is version 1",
        "policy.toml:2: namespace: expected a word",
        "policy.toml:3: stores: expected names and URLs, as in {fleet: redis://cache}",
        "policy.toml:5: plan: expected {trusted_header: name} or {claim: name}",
        "policy.toml:6: plan.header: unknown field 'header'",
        f"policy.toml:9: rules[0].key: expected one of {words}",
        "policy.toml:10: rules[0].limits: cannot read the limit '[[rules]]\\n'",
        "policy.toml:18: rules[1].key.param: no {id} in the path",
        "policy.toml:20: rules[1].limits.pro: unknown unit in the time 'minuet'",
        "policy.toml:22: rules[1].match.pth: unknown field 'pth'",
        "policy.toml:24: rules[1].match.not.ip: '10.0.0.300' is no network or address",
        "policy.toml:26: rules[2]: a rule needs 'key', as in key: ip, limits: 100/minute",
        "policy.toml:28: rules[2].act.shadow.status: expected a whole number from 200 to 599",
        "policy.toml:29: rules[2].cost.default: expected a whole number from 0",
        "policy.toml:29: rules[2].cost.after.status.6xx: expected a status such as 401 or 5xx",
    ]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("a = 1\nb = [1,\n", "policy.toml:2: not TOML: Invalid value"),
        ("a = 1\n\nb = ]\n", "policy.toml:3: not TOML: Invalid value"),
        ("[a]\n[a]\n", "policy.toml:2: not TOML: Cannot declare ('a',) twice"),
        ('a = "', "policy.toml:1: not TOML: Unterminated string"),
        ("", "policy.toml:1: a policy needs rules, a list"),
    ],
)
def test_wrong_syntax_has_its_line_too(tmp_path, text, told):
    """The parser's own; at the end of the document, its last."""
    assert said(tmp_path, text) == [told]


def paths_of(value: Any, path: tuple[Any, ...] = ()) -> set[tuple[Any, ...]]:
    """The way to every value there is."""
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return {path}.union(*(paths_of(child, (*path, step)) for step, child in inside))


WORDS = st.sampled_from(["a", "b-1", '"c d"', "'e.f'", '"\\u00e9#"', "1"])
SCALARS = st.sampled_from(
    [
        "1", "-1.5e3", "true", '"x"', "'y'", '"a # ] } \\" ="', "'[b'", "1979-05-27 07:32:32", "inf", '""', "''",
        '"""\n[x]\n\\""" a"""', '""""q"""', "'''\nk = 1\n''q'''", '"""two"""""', "'''' '''", '"""a\\\n  b"""',
    ]
)  # fmt: skip
SPACE = st.sampled_from(["", " ", "\t "])
LINES = st.sampled_from(["", " ", "\n", ' # ] } , "\n', "\n\n  "])


@st.composite
def lists(draw: Any, values: Any) -> str:
    inside = [f"{draw(LINES)}{draw(values)}{draw(LINES)}" for _ in range(draw(st.integers(0, 3)))]
    return f"[{','.join(inside)}{draw(st.sampled_from(['', ',', ' ,'])) if inside else ''}{draw(LINES)}]"


@st.composite
def tables(draw: Any, values: Any) -> str:
    inside = [f" {word}{draw(SPACE)}={draw(SPACE)}{draw(values)} " for word in draw(st.sets(WORDS, max_size=3))]
    return "{" + ",".join(inside) + "}"


VALUES = st.recursive(SCALARS, lambda inner: lists(inner) | tables(inner), max_leaves=6)
KEYS = st.lists(WORDS, min_size=1, max_size=3).map(" .\t".join)
PAIRS = st.builds("{}{}={}{}{}".format, SPACE, KEYS, SPACE, VALUES, st.sampled_from(["", " # c", "\t"]))
HEADERS = st.builds("{0}[{1}{0}]".format, SPACE, KEYS) | st.builds("[[{0}{1}{0}]] # ]".format, SPACE, KEYS)
DOCUMENTS = st.lists(PAIRS | HEADERS | st.sampled_from(["", "# a = 1"]), max_size=8).map("\n".join)


@settings(max_examples=600)
@given(DOCUMENTS)
def test_everything_in_a_file_has_a_line_on_which_its_name_or_value_stands(text):
    """Whatever the parser reads, the scan reads the same way: the same paths, none more and none less."""
    try:
        value = tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return
    found = lines_of(text)
    assert set(found) == paths_of(value)
    rows = text.split("\n")
    for path, line in found.items():
        if path and isinstance(path[-1], str):
            names = (path[-1], path[-1].replace("é", "\\u00e9"))
            assert any(name in rows[line - 1] for name in names), (path, line)


@given(st.text("[]{}=.,#\"'\\\n ab1", max_size=60))
def test_the_scan_never_raises(text):
    """Also for what is no TOML at all."""
    assert lines_of(text)[()] == 1
