"""Reading policies: every mistake with its place, every format, and files that mean harm."""

from __future__ import annotations

import json
import tracemalloc
import warnings
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.errors import InvalidPolicy
from headgate.limit import Limit, LimitWarning
from headgate.policy import Policy

pytestmark = pytest.mark.engineless

FIXTURES = Path(__file__).parent / "errors.txt"
RULE = {"key": "ip", "limits": "2/minute"}


def fixtures() -> dict[str, list[str]]:
    """The texts, each with the messages that stand between its lines."""
    found: dict[str, list[str]] = {}
    for block in FIXTURES.read_text(encoding="utf-8").split("\n\n")[1:]:
        lines = block.strip("\n").split("\n")
        text = "\n".join(line for line in lines if not line.startswith("=> "))
        found[text] = [line[3:] for line in lines if line.startswith("=> ")]
    return found


def mistakes(folder: Path, data: str | bytes, name: str = "policy.yaml") -> list[str]:
    """What is said about a file; the folder is left out."""
    file = folder / name
    file.write_bytes(data if isinstance(data, bytes) else data.encode())
    with pytest.raises(InvalidPolicy) as raised:
        Policy.load(file)
    assert str(raised.value) == "\n".join(raised.value.mistakes)
    return [mistake.replace(f"{folder}/", "") for mistake in raised.value.mistakes]


def rule(**fields: Any) -> dict[str, Any]:
    """A policy of one rule."""
    return {"rules": [{**RULE, **fields}]}


def of_mapping(value: Any) -> list[str]:
    """What is said about a Python value."""
    with pytest.raises(InvalidPolicy) as raised:
        Policy(value)
    return list(raised.value.mistakes)


@pytest.mark.parametrize("text", fixtures())
def test_every_mistake_is_told_with_its_line_its_path_and_what_was_meant(tmp_path, text):
    """Exactly the messages of the fixture, all of them, in the order of the file."""
    assert mistakes(tmp_path, f"{text}\n") == fixtures()[text]


def test_the_formats_say_the_same_thing(tmp_path):
    """YAML, TOML, JSON and a mapping: one policy."""
    words = {"yaml": "rules:\n- key: ip\n  limits: 2/minute\n", "toml": '[[rules]]\nkey = "ip"\nlimits = "2/minute"\n'}
    for suffix, text in {**words, "yml": words["yaml"], "json": json.dumps(rule())}.items():
        file = tmp_path / f"policy.{suffix}"
        file.write_text(text)
        for given_as in (file, str(file)):
            (read,) = Policy.load(given_as).rules
            assert (read.name, read.plans) == ("rule-1", {"default": (Limit(2, "minute", name="rule-1"),)})
    assert Policy.load(rule()).rules[0].plans == {"default": (Limit(2, "minute", name="rule-1"),)}
    ready = Policy(rule())
    assert Policy.load(ready) is ready


def test_json_has_lines_too(tmp_path):
    """JSON is YAML, whose parser tells the lines."""
    text = '{"rules": [{"key": "ip",\n  "limits": "2/minute",\n  "misssing": "ip"}]}'
    said = "policy.json:3: rules[0].misssing: unknown field 'misssing'; did you mean 'missing'?"
    assert mistakes(tmp_path, text, "policy.json") == [said]


def test_a_mapping_has_the_path_alone():
    """There is no file to name."""
    assert of_mapping(rule(misssing="ip")) == ["rules[0].misssing: unknown field 'misssing'; did you mean 'missing'?"]


@pytest.mark.parametrize(
    ("name", "data", "said"),
    [
        ("policy.json", '{"rules":\n [}', "policy.json:2: not JSON: Expecting value"),
        ("policy.toml", "rules = [\n", "policy.toml:1: not TOML: Invalid value"),
        ("policy.toml", "a = 1\na = 2\n", "policy.toml:2: not TOML: Cannot overwrite a value"),
        ("policy.ini", "", "policy.ini: a policy must be a .yaml, .toml or .json file"),
        ("policy", "", "policy: a policy must be a .yaml, .toml or .json file"),
        ("policy.yaml", "#" * 1_000_001, "policy.yaml: a policy may have at most 1000000 bytes"),
        ("policy.json", "[" * 100_000, "policy.json: nested too deeply"),
        ("policy.yaml", "a: " + "[" * 65 + "]" * 65, "policy.yaml:1: too large: at most 50000 values, 64 deep"),
        ("policy.yaml", "a: " + "[" * 5000 + "]" * 5000, "policy.yaml:1: too large: at most 50000 values, 64 deep"),
        ("policy.yaml", "- " * 5000, "policy.yaml:1: too large: at most 50000 values, 64 deep"),
        ("policy.yaml", "a: &a [*a]", "policy.yaml:1: too large: at most 50000 values, 64 deep"),
        (
            "policy.yaml",
            b"rules: \xff",
            "policy.yaml:1: not UTF-8: found the byte 0xff",
        ),
    ],
)
def test_what_is_no_policy_is_told_in_one_line(tmp_path, name, data, said):
    """Wrong syntax, a wrong suffix, too large, too deep, not UTF-8."""
    assert mistakes(tmp_path, data, name) == [said]


def test_a_file_that_is_not_there_is_told(tmp_path):
    """As is one that is a folder, and a name that no file can have."""
    for path in (tmp_path / "none.yaml", tmp_path, "a\0b.yaml"):
        with pytest.raises(InvalidPolicy, match="cannot be read"):
            Policy.load(path)


def test_a_billion_laughs_are_not_laughed(tmp_path):
    """Aliases that would unfold to a thousand million values end at fifty thousand, with little memory."""
    lines = ["a: &a [x,x,x,x,x,x,x,x,x,x]"]
    lines += [f"{to}: &{to} [{','.join([f'*{of}'] * 10)}]" for of, to in zip("abcdefgh", "bcdefghi", strict=True)]
    tracemalloc.start()
    try:
        said = mistakes(tmp_path, "\n".join(lines))
        assert tracemalloc.get_traced_memory()[1] < 64_000_000
    finally:
        tracemalloc.stop()
    assert said == ["policy.yaml:5: too large: at most 50000 values, 64 deep"]


def test_a_field_that_is_said_twice_is_a_mistake_in_json_too(tmp_path):
    """The parser would quietly take the last."""
    text = '{"rules": [{"key": "ip",\n "limits": "1/minute",\n "limits": "2/minute"}]}'
    assert mistakes(tmp_path, text, "policy.json") == ["policy.json:3: 'limits' is given twice"]


def deep(levels: int) -> dict[str, Any]:
    nested: dict[str, Any] = {"ip": "10.0.0.1"}
    for _ in range(levels):
        nested = {"not": nested}
    return rule(match=nested)


@pytest.mark.parametrize("levels", [300, 20_000])
def test_a_mapping_that_is_nested_too_deeply_is_a_mistake(levels):
    """As it is in YAML."""
    assert len(of_mapping(deep(levels))) == 1


def test_json_that_is_nested_too_deeply_for_yaml_is_a_mistake(tmp_path):
    """One depth for every format."""
    assert len(mistakes(tmp_path, json.dumps(deep(300)), "policy.json")) == 1


@pytest.mark.parametrize(
    "text",
    [
        "rules: 2020-99-99",
        "rules: 0x_",
        "rules: !!int abc",
        "rules: !!float abc",
        "rules: !!bool abc",
        "rules: !!timestamp abc",
        "rules: !!binary é",
        f"rules: {'1' * 5000}",
        f"rules: 0x{'f' * 5000}",
    ],
)
def test_yaml_scalars_that_cannot_be_read_are_mistakes(tmp_path, text):
    """PyYAML raises whatever Python raises for them."""
    (said,) = mistakes(tmp_path, text)
    assert said.startswith("policy.yaml:1: ")


@pytest.mark.parametrize("name", ["policy.json", "policy.toml"])
def test_numbers_of_many_digits_are_mistakes(tmp_path, name):
    """Python refuses to read them, with a ValueError."""
    text = f'{{"rules": {"1" * 5000}}}' if name.endswith("json") else f"rules = {'1' * 5000}"
    (said,) = mistakes(tmp_path, text, name)
    assert said.startswith((f"{name}: ", f"{name}:1: "))


@pytest.mark.parametrize(
    ("fields", "place"),
    [
        ({"store": ["a"]}, "rules[0].store: "),
        ({"store": {"a": "b"}}, "rules[0].store: "),
        ({"count": {"when": {"status": "²"}}}, "rules[0].count.when.status: "),
        ({"cost": -(10**5000)}, "rules[0].cost: "),
        ({"cost": 2**53 + 1}, "rules[0].cost: "),
        ({"for": 10**400}, "rules[0].for: "),
        ({"for": float("inf")}, "rules[0].for: "),
        ({"act": {"shadow": {"body": "\ud800"}}}, "rules[0].act.shadow.body: "),
        ({"act": {"shadow": {"status": 600}}}, "rules[0].act.shadow.status: "),
        ({"act": {"shadow": {"content_type": "text/plain\r\nx: y"}}}, "rules[0].act.shadow.content_type: "),
        ({"act": {"shadow": {"content_type": "text/€"}}}, "rules[0].act.shadow.content_type: "),
        ({"act": {"shadow": {"content_type": 7}}}, "rules[0].act.shadow.content_type: "),
    ],
)
def test_values_that_could_only_fail_later_are_mistakes_now(fields, place):
    """A value that Python would stumble over, or that no server would send, is found while reading."""
    (said,) = of_mapping(rule(**fields))
    assert said.startswith(place)


def test_styles_of_headers_that_exclude_each_other_are_a_mistake():
    """Two that write the same fields, or one beside none."""
    for styles in (["x-ratelimit", "x-ratelimit-epoch"], ["none", "draft-11"], ["draft-6", "draft-6"]):
        (said,) = of_mapping({**rule(), "headers": styles})
        assert said.startswith("headers: ")


def test_rules_whose_names_with_their_limits_names_are_the_same_are_a_mistake():
    """Rule a has limits a.1 and a.2, so a rule a.1 would share the first one's state."""
    rules = [{**RULE, "name": "a", "limits": "2/minute; 20/hour"}, {**RULE, "name": "a.1", "limits": "5/minute"}]
    (said,) = of_mapping({"rules": rules})
    assert said.startswith("rules[1].name: ")


def test_a_warning_about_a_limit_is_given_once_and_in_its_own_words():
    """The warning is not given a second time for the name that the rule gives the limit."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        Policy(rule(limits="2/minute by sliding-window"))
    assert len([each for each in caught if each.category is LimitWarning]) == 1


WORDS = (
    "ip user path method host header query any all not name match key limits cost count when status refused act delay "
    "hold shadow body content_type for missing on_error after default GET param constant rules store plan claim "
    "env file algorithms audience"
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
    | st.sampled_from(["ip", "10/minute", "/a/**", "/{id}", "GET", "5xx", "10m", "10.0.0.0/8", "deny", "delay", "*"]),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(
        st.sampled_from(WORDS.split())
        | st.text(max_size=4),
        inner,
        max_size=4,
    ),
    max_leaves=12,
)  # fmt: skip
RULES = "name match key limits cost count act for missing on_error disclose exempt store"
FIELDS = st.sampled_from(RULES.split())
POLICIES = "version rules allow deny plan tokens pepper headers namespace stores"
HEADS = st.sampled_from(POLICIES.split())
DIFFICULT = "{}[]:-&*!|>?'\"#, \n\tab1"


def read_or_refuse(read: Any) -> None:
    """A policy or InvalidPolicy, and nothing else ever."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LimitWarning)
        try:
            read()
        except InvalidPolicy as told:
            assert told.mistakes  # noqa: PT017


@settings(max_examples=400)
@given(st.dictionaries(FIELDS, VALUES, max_size=4), st.dictionaries(HEADS, VALUES, max_size=2))
def test_any_value_is_a_policy_or_its_mistakes(fields, head):
    """Rules and policies of random values."""
    read_or_refuse(lambda: Policy({**rule(**fields), **head}))


@settings(max_examples=300)
@given(
    st.sampled_from(["yaml", "toml", "json"]),
    st.binary(max_size=60) | st.text(DIFFICULT, max_size=60),
)
def test_any_bytes_are_a_policy_or_its_mistakes(tmp_path_factory, suffix, data):
    """Files of random bytes, and of what YAML finds difficult."""
    file = tmp_path_factory.getbasetemp() / f"fuzzed.{suffix}"
    file.write_bytes(data if isinstance(data, bytes) else data.encode())
    read_or_refuse(lambda: Policy.load(file))


@settings(max_examples=150)
@given(VALUES)
def test_any_json_is_a_policy_or_its_mistakes(tmp_path_factory, value):
    """Well-formed files with anything in them."""
    file = tmp_path_factory.getbasetemp() / "fuzzed.json"
    file.write_text(json.dumps({"rules": [{**RULE, "match": value}]}))
    read_or_refuse(lambda: Policy.load(file))


def test_a_policy_of_the_largest_size_is_read(tmp_path):
    """A file of exactly 1,000,000 bytes has its rules; it is not taken for an empty one."""
    file = tmp_path / "policy.yaml"
    file.write_text("rules: [{name: one, key: ip, limits: 1/minute}]\n".ljust(1_000_000, "#"))
    assert [rule.name for rule in Policy.load(file).rules] == ["one"]
