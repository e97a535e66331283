"""Mistakes in TOML files: their parser tells the lines of wrong syntax, and of nothing else."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.errors import InvalidPolicy
from headgate.policy import Policy
from headgate.policy.source import line_of_dots

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


def test_every_mistake_in_a_toml_file_has_its_place(tmp_path):
    """In tables, lists of tables, inline tables and dotted keys."""
    words = "ip, user, plan, host, method, path, route, everyone"
    assert said(tmp_path, MISTAKEN) == [
        "policy.toml: version: expected version 1",
        "policy.toml: stores: expected names and URLs, as in {fleet: redis://cache}",
        "policy.toml: namespace: expected a word",
        "policy.toml: plan.header: unknown field 'header'",
        "policy.toml: plan: expected {trusted_header: name} or {claim: name}",
        "policy.toml: rules[0].limits: cannot read the limit '[[rules]]\\n'",
        f"policy.toml: rules[0].key: expected one of {words}",
        "policy.toml: rules[1].match.pth: unknown field 'pth'",
        "policy.toml: rules[1].match.not.ip: '10.0.0.300' is not a network or an address",
        "policy.toml: rules[1].limits.pro: unknown unit in the time 'minuet'",
        "policy.toml: rules[1].key.param: no {id} in the path",
        "policy.toml: rules[2]: a rule needs 'key', as in key: ip, limits: 100/minute",
        "policy.toml: rules[2].act.shadow.status: expected a whole number from 200 to 599",
        "policy.toml: rules[2].cost.default: expected a whole number from 0",
        "policy.toml: rules[2].cost.after.status.6xx: expected a status such as 401 or 5xx",
    ]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("a = 1\nb = [1,\n", "policy.toml:2: not TOML: Invalid value"),
        ("a = 1\n\nb = ]\n", "policy.toml:3: not TOML: Invalid value"),
        ("[a]\n[a]\n", "policy.toml:2: not TOML: Cannot declare ('a',) twice"),
        ('a = "', "policy.toml:1: not TOML: Unterminated string"),
        ("", "policy.toml: a policy needs a list of rules"),
    ],
)
def test_wrong_syntax_has_its_line_too(tmp_path, text, told):
    """The parser's own; at the end of the document, its last."""
    assert said(tmp_path, text) == [told]


@given(st.text("[]{}=.,#\"'\\\n ab1", max_size=60), st.integers(0, 3))
def test_a_key_of_too_many_dots_is_found_before_the_parser_sees_it(text, most):
    """Such a key is also found in a text that is no TOML; a text without one has no more dots in a row of words."""
    found = line_of_dots(text, most)
    plain = re.findall(r"[ab1.]+", re.sub(r"""["'#].*""", "", text, flags=re.DOTALL))
    assert found is not None or all(word.count(".") <= most for word in plain)
