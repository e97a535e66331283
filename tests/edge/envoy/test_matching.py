"""How the entries of a request find their limit: one row for each rule of envoyproxy/ratelimit."""

from __future__ import annotations

import pytest

from headgate.edge.envoy.rules import Descriptor, Rule, find, key_of, wildcard

pytestmark = pytest.mark.engineless

Tree = dict[tuple[str, str], "int | tuple[int, Tree] | Tree"]


def domain_of(tree: Tree) -> Descriptor:
    """A domain from keys and values; a number is the limit of a descriptor, a dict the descriptors below it."""
    return filled(Descriptor(), tree)


def filled(parent: Descriptor, tree: Tree) -> Descriptor:
    for (key, value), given in tree.items():
        number, below = given if isinstance(given, tuple) else (given, {}) if isinstance(given, int) else (None, given)
        rule = None if number is None else Rule(number, 1, None)
        assert parent.add(key, filled(Descriptor(rule, value, shares=value.startswith("shared")), below))
    return parent


DEEP = [("k", "v"), ("s", "t")]
ROWS = [
    ("the pair of key and value", {("k", "v"): 1}, [("k", "v")], 1),
    ("another value finds nothing", {("k", "v"): 1}, [("k", "w")], None),
    ("another key finds nothing", {("k", "v"): 1}, [("j", "v")], None),
    ("values are case-sensitive", {("k", "v"): 1}, [("k", "V")], None),
    ("keys are case-sensitive", {("k", "v"): 1}, [("K", "v")], None),
    ("the key alone takes any value", {("k", ""): 1}, [("k", "x")], 1),
    ("the key alone takes no value too", {("k", ""): 1}, [("k", "")], 1),
    ("the pair comes before the key alone", {("k", ""): 1, ("k", "v"): 2}, [("k", "v")], 2),
    ("the key alone takes the rest", {("k", ""): 1, ("k", "v"): 2}, [("k", "w")], 1),
    ("a wildcard at the end", {("k", "v*"): 1}, [("k", "v12")], 1),
    ("a wildcard stands for no text too", {("k", "v*"): 1}, [("k", "v")], 1),
    ("a wildcard needs its prefix", {("k", "v*"): 1}, [("k", "w1")], None),
    ("a wildcard in the middle", {("k", "/a/*/z"): 1}, [("k", "/a/b/c/z")], 1),
    ("a wildcard needs its suffix", {("k", "/a/*/z"): 1}, [("k", "/a/b/y")], None),
    ("prefix and suffix do not overlap", {("k", "aba*aba"): 1}, [("k", "aba")], None),
    ("a wildcard at the beginning", {("k", "*.pdf"): 1}, [("k", "x.pdf")], 1),
    ("several wildcards in their order", {("k", "a*b*c"): 1}, [("k", "a-b-c")], 1),
    ("several wildcards out of order", {("k", "a*b*c"): 1}, [("k", "a-c-b")], None),
    ("a wildcard alone takes no value", {("k", "*"): 1}, [("k", "")], 1),
    ("a wildcard takes lines too", {("k", "a*b"): 1}, [("k", "a\nb")], 1),
    ("a dot is a dot", {("k", "a.c*"): 1}, [("k", "abc")], None),
    ("the pair comes before a wildcard", {("k", "v*"): 1, ("k", "v1"): 2}, [("k", "v1")], 2),
    ("a wildcard comes before the key alone", {("k", ""): 1, ("k", "v*"): 2}, [("k", "v1")], 2),
    ("the first wildcard of the file", {("k", "v*"): 1, ("k", "v1*"): 2}, [("k", "v12")], 1),
    ("the first wildcard, not the closest", {("k", "*2"): 1, ("k", "v1*"): 2}, [("k", "v12")], 1),
    ("a wildcard belongs to its key", {("j", "v*"): 1, ("k", ""): 2}, [("k", "v1")], 2),
    ("two levels", {("k", "v"): {("s", ""): 1}}, [("k", "v"), ("s", "t")], 1),
    ("a level without limit gives none", {("k", "v"): {("s", ""): 1}}, [("k", "v")], None),
    ("a request that is too deep", {("k", "v"): 1}, [("k", "v"), ("s", "t")], None),
    ("a request that is too shallow", {("k", "v"): {("s", ""): 1}}, [("k", "v")], None),
    ("limits at both levels: the first", {("k", "v"): (1, {("s", ""): 2})}, [("k", "v")], 1),
    ("limits at both levels: the second", {("k", "v"): (1, {("s", ""): 2})}, [("k", "v"), ("s", "t")], 2),
    ("both levels, and another second key", {("k", "v"): (1, {("s", ""): 2})}, [("k", "v"), ("r", "t")], None),
    ("the order of entries counts", {("k", "v"): {("s", ""): 1}}, [("s", "t"), ("k", "v")], None),
    ("no way back from the pair", {("k", "v"): {("s", "x"): 1}, ("k", ""): {("s", ""): 2}}, DEEP, None),
    ("no way back from a wildcard", {("k", "v*"): {("s", "x"): 1}, ("k", ""): {("s", ""): 2}}, DEEP, None),
    ("wildcards of an inner level", {("k", ""): {("s", "t*"): 1}}, [("k", "v"), ("s", "t1")], 1),
    ("wildcards of the outer level stay there", {("s", "t*"): 9, ("k", ""): {("s", ""): 1}}, DEEP, 1),
    ("key and value are two words", {("a_b", "c"): 1}, [("a", "b_c")], None),
    ("no entries", {("k", ""): 1}, [], None),
]  # fmt: skip


@pytest.mark.parametrize(("tree", "entries", "found"), [row[1:] for row in ROWS], ids=[row[0] for row in ROWS])
def test_an_entry_finds_its_descriptor(tree: Tree, entries: list[tuple[str, str]], found: int | None) -> None:
    """Key and value, then wildcards in the order of the file, then the key alone; never back, and equally deep."""
    rule, _ = find(domain_of(tree), entries)
    assert (None if rule is None else rule.requests_per_unit) == found


@pytest.mark.parametrize(
    ("entries", "counted"),
    [
        ([("k", "shared/a")], [("k", "shared/*")]),
        ([("k", "other/a")], [("k", "other/a")]),
        ([("j", "shared/a"), ("s", "t")], [("j", "shared/*"), ("s", "t")]),
        ([("k", "shared/*")], [("k", "shared/*")]),
    ],
    ids=["shared", "apart", "at an outer level", "the wildcard as a value"],
)
def test_a_shared_wildcard_counts_by_its_pattern(
    entries: list[tuple[str, str]], counted: list[tuple[str, str]]
) -> None:
    """With `share_threshold`, all values of a wildcard are one count; other entries keep their values."""
    domain = domain_of({("k", "shared/*"): 1, ("k", "other/*"): 2, ("j", "shared/*"): {("s", ""): 3}})
    assert find(domain, entries)[1] == counted


def test_the_same_descriptor_twice_is_told() -> None:
    """A level has each pair of key and value once."""
    level = Descriptor()
    assert level.add("k", Descriptor(None, "v"))
    assert not level.add("k", Descriptor(None, "v"))


def test_keys_of_different_entries_differ() -> None:
    """No two lists of entries have one key, whatever characters they have."""
    lists = [
        [("a", "b_c")], [("a_b", "c")], [("a", "b"), ("c", "")], [("a", ""), ("b", "c")], [("a", "1:b")],
        [("a:1", "b")], [("a", "b1:c1:d")], [("a", "b"), ("c", "d")], [("a", "x" * 5000)], [("a", "x" * 5001)],
        [("a", "é" * 2100)],
    ]  # fmt: skip
    keys = [key_of(domain, entries) for domain in ("d", "dd", "d1") for entries in lists]
    assert len(set(keys)) == len(keys)
    assert max(len(key.encode()) for key in keys) <= 4096


def test_a_hostile_value_is_matched_in_one_pass() -> None:
    """Forty wildcards against 20,000 characters take one pass from the left: this test would not end otherwise."""
    assert not wildcard("*a" * 40 + "*b").fullmatch("a" * 20_000)
    assert wildcard("*a" * 40 + "*b").fullmatch("a" * 20_000 + "b")
