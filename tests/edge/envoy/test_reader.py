"""The files of envoyproxy/ratelimit, read as they are; and every mistake in them, with its line."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.edge.envoy.reader import Domains, read_domains
from headgate.edge.envoy.rules import find
from headgate.errors import InvalidPolicy
from headgate.limit import Limit
from tests.edge.envoy.support import Service

pytestmark = pytest.mark.engineless

EVERYTHING = """\
domain: edge
descriptors:
  - key: code
    value: 404
    rate_limit: {unit: Minute, requests_per_unit: 5, name: notfound}
  - key: version
    value: 1.10
    shadow_mode: true
    rate_limit:
      unit: month
      requests_per_unit: 7
      replaces:
        - name: notfound
  - key: flag
    value: no
    quota_mode: true
    rate_limit: {unit: year, requests_per_unit: 8, algorithm: token-bucket, burst: 2}
  - key: open
    rate_limit: {unlimited: true}
  - key: closed
    rate_limit: {unit: day, requests_per_unit: 0}
  - key: tree
    detailed_metric: true
    descriptors:
      - key: leaf
        value: a*
        share_threshold: true
        value_to_metric: true
        metadata: {team: x}
        rate_limit: {unit: week, requests_per_unit: 4294967295}
"""


def read(directory: Path, *texts: str, algorithm: str = "fixed-window") -> Domains:
    for number, text in enumerate(texts):
        (directory / f"{number}.yaml").write_text(text, encoding="utf-8")
    return read_domains(directory, algorithm)


@pytest.mark.parametrize(
    ("entries", "limit"),
    [
        ([("code", "404")], Limit(5, 60, algorithm="fixed-window")),
        ([("version", "1.10")], Limit(7, 30 * 86_400, algorithm="fixed-window")),
        ([("flag", "no")], Limit(8, 365 * 86_400, burst=2)),
        ([("open", "x")], None),
        ([("closed", "x")], None),
        ([("tree", "x"), ("leaf", "ab")], Limit(2**32 - 1, 7 * 86_400, algorithm="fixed-window")),
    ],
)
def test_every_field_is_read(tmp_path: Path, entries: list[tuple[str, str]], limit: Limit | None) -> None:
    """Values are the texts of the file; a month has 30 days and a year 365; `algorithm` and `burst` are added."""
    rule, _ = find(read(tmp_path, EVERYTHING).by_name["edge"], entries)
    assert rule is not None
    assert rule.limit == limit


def test_flags_and_names_are_read(tmp_path: Path) -> None:
    """Shadow and quota mode, names, replaced names and unlimited descriptors reach the rule."""
    domain = read(tmp_path, EVERYTHING).by_name["edge"]
    entries = [("code", "404"), ("version", "1.10"), ("flag", "no"), ("open", "")]
    rules = {key: find(domain, [(key, value)])[0] for key, value in entries}
    assert {
        key: rule and (rule.shadow, rule.quota, rule.unlimited, rule.name, rule.replaces) for key, rule in rules.items()
    } == {
        "code": (False, False, False, "notfound", ()),
        "version": (True, False, False, "", ("notfound",)),
        "flag": (False, True, False, "", ()),
        "open": (False, False, True, "", ()),
    }


def test_fields_without_effect_are_told(tmp_path: Path) -> None:
    """Three fields are read and do nothing; a service says so at its start, with their lines."""
    assert Service(tmp_path, EVERYTHING).limits.notes == (
        "0.yaml:23: `detailed_metric` is read and does nothing",
        "0.yaml:28: `value_to_metric` is read and does nothing",
        "0.yaml:29: `metadata` is read and does nothing",
    )


def test_an_empty_block_is_no_limit(tmp_path: Path) -> None:
    """`rate_limit:` and `descriptors:` without content are as if they were not there."""
    domain = read(tmp_path, "domain: d\ndescriptors:\n  - key: k\n    rate_limit:\n    descriptors:\n").by_name["d"]
    assert find(domain, [("k", "v")]) == (None, [("k", "v")])


BAD = """\
domain: d
descriptors:
  - key: a
    rate_limt: {unit: minute, requests_per_unit: 1}
  - value: b
  - key: c
    rate_limit: {unit: fortnight, requests_per_unit: 1}
  - key: d
    rate_limit: {unit: minute}
  - key: e
    rate_limit: {unit: minute, requests_per_unit: -1}
  - key: f
    rate_limit: {unlimited: true, unit: minute}
  - key: g
    value: x
    share_threshold: true
  - key: c
  - key: h
    rate_limit: {unit: minute, requests_per_unit: 1, name: n, replaces: [{name: n}]}
  - key: i
    rate_limit: {unit: minute, requests_per_unit: 1, replaces: [{name: }]}
  - key: j
    rate_limit: {unit: minute, requests_per_unit: 5, algorithm: magic}
  - key: k
    rate_limit: {unit: minute, requests_per_unit: 5, burst: 2}
  - key: l*
  - key: m
    shadow_mode: maybe
  - key: n
    descriptors: {key: x}
"""


def test_all_mistakes_of_all_files_come_at_once(tmp_path: Path) -> None:
    """Every mistake is told with its file and line, in one error."""
    with pytest.raises(InvalidPolicy) as caught:
        read(tmp_path, BAD, "domain: d\n", "descriptors: [\n", "- domain\n", "domain: other\nfoo: 1\n")
    assert [mistake.partition(": ")[0] for mistake in caught.value.mistakes] == [
        "0.yaml:4", "0.yaml:5", "0.yaml:7", "0.yaml:9", "0.yaml:11", "0.yaml:13", "0.yaml:16", "0.yaml:17", "0.yaml:19",
        "0.yaml:21", "0.yaml:23", "0.yaml:25", "0.yaml:26", "0.yaml:28", "0.yaml:30",
        "1.yaml:1", "2.yaml:2", "3.yaml:1", "3.yaml:1", "4.yaml:2",
    ]  # fmt: skip
    text = str(caught.value)
    for part in (
        "unknown field 'rate_limt'; did you mean 'rate_limit'?", "a descriptor needs a `key`", "got 'fortnight'",
        "write 0 to refuse everything", "got '-1'", "an unlimited descriptor has no unit", "needs a `value` with `*`",
        "is given twice", "cannot replace itself", "needs the `name` of a limit", "magic", "burst 2",
        "a wildcard in a `value` only", "must be true or false", "expected a list of descriptors",
        "the domain 'd' is in another file already", "not YAML", "the domain needs a name", "unknown field 'foo'",
    ):  # fmt: skip
        assert part in text


def test_a_directory_without_files_is_a_mistake(tmp_path: Path) -> None:
    """An empty directory and a missing one are refused; files that begin with a dot are not read."""
    (tmp_path / ".hidden.yaml").write_text("x", encoding="utf-8")
    (tmp_path / "readme.md").write_text("x", encoding="utf-8")
    for directory in (tmp_path, tmp_path / "none"):
        with pytest.raises(InvalidPolicy):
            read_domains(directory, "fixed-window")


@settings(max_examples=150, deadline=None)
@given(
    text=st.lists(
        st.sampled_from(
            ["domain: d\n", "descriptors:\n", "  - key: k\n", "    value: '*'\n", "    rate_limit:\n",
             "      unit: day\n", "      requests_per_unit: 3\n", "      replaces:\n", "        - name: x\n",
             "    descriptors:\n", "&a ", "*a\n", "? ", "[", "{", "\x00", "- ", "!!binary x\n", "---\n", "\t",
             "    shadow_mode: [true]\n"]
        ),
        max_size=12,
    ).map("".join)
)  # fmt: skip
def test_any_file_is_read_or_refused(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    """A file of any content gives domains or `InvalidPolicy`, and no other error."""
    directory = tmp_path_factory.mktemp("files")
    with suppress(InvalidPolicy):
        assert list(read(directory, text).by_name) == ["d"]
