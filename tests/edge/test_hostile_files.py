"""Files that nobody meant to write: each is read, or refused with the line of every mistake, without another error."""

from __future__ import annotations

import copy
import random
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from headgate.cli import main
from headgate.edge.envoy import read_domains
from headgate.edge.service_policy import applied
from headgate.errors import InvalidPolicy
from headgate.policy import Policy

pytestmark = [pytest.mark.engineless, pytest.mark.filterwarnings("ignore::headgate.LimitWarning")]
FILES = 80
ENVOY: Any = {
    "domain": "d",
    "descriptors": [
        {
            "key": "k", "value": "v", "shadow_mode": True, "quota_mode": False, "detailed_metric": True,
            "rate_limit": {"unit": "day", "requests_per_unit": 3, "name": "n", "replaces": [{"name": "x"}], "burst": 3,
                           "algorithm": "token-bucket"},
            "descriptors": [{"key": "s", "rate_limit": {"unlimited": True}}],
        },
        {"key": "w", "value": "*", "share_threshold": True},
    ],
}  # fmt: skip
POLICY: Any = {
    "rules": [
        {
            "name": "one", "match": {"path": "/a/{id}", "method": ["GET"], "query": {"q": "1"}}, "missing": "deny",
            "key": ["ip", {"param": "id"}], "limits": {"default": "5/minute", "pro": "9/minute"}, "act": "delay",
        },
    ],
    "deny": {"path": "/denied"},
}  # fmt: skip
ODD: Any = [
    None, True, 0, -1, 1.5, float("inf"), float("nan"), 10**30, "", "*", "a" * 5000, "\u2028", "0x10", "1e3", [], {},
    [None], {"a": None}, {1: 2}, {None: 1}, [{"key": "k"}], "in flight", "\x1b[31m", "2026-01-01", b"\xff\x00",
]  # fmt: skip
NOISE = [
    b"\xff\xfe", b"\0", b"&a ", b"*a", b"\t", b"\r", b"\xe2\x80\xa8", b"!!python/object:os.system ", b"? ",
    b"- - - ", b"{" * 50, b"%YAML 9.9\n---\n", b"'", b"\xf0\x9f",
]  # fmt: skip


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every mapping or list inside a value, with each of its keys or places."""
    for at in list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
        yield value, at
        yield from places(value[at])


def hostile(good: Any, chance: random.Random) -> bytes:
    """The file of a value in which something is replaced, missing or added, and bytes are changed."""
    value = copy.deepcopy(good)
    for _ in range(chance.randrange(4)):
        inside, at = chance.choice([*places(value)] or [([None], 0)])
        change = chance.randrange(4)
        if change == 0:
            del inside[at]
        elif change == 1 and isinstance(inside, dict):
            inside[chance.choice(["foo", 1, None, "<<"])] = copy.deepcopy(chance.choice(ODD))
        else:
            inside[at] = copy.deepcopy(chance.choice(ODD))
    data = bytearray(yaml.safe_dump(value, sort_keys=False, default_flow_style=chance.random() < 0.5).encode())
    for _ in range(chance.choice([0, 0, 1, 3])):
        at = chance.randrange(len(data))
        data[at : at + chance.randrange(3)] = chance.choice([*NOISE, bytes([chance.randrange(256)])])
    return bytes(data)


def read_policy(folder: Path) -> None:
    applied(Policy.load(folder / "f.yaml"))


@pytest.mark.parametrize(
    ("good", "read"),
    [(ENVOY, lambda folder: read_domains(folder, "fixed-window")), (POLICY, read_policy)],
    ids=["envoy", "policy"],
)
def test_any_file_is_read_or_refused_with_lines(tmp_path: Path, good: Any, read: Callable[[Path], None]) -> None:
    """Values of other kinds, fields that are missing or unknown, and bytes that are no text."""
    chance, mistakes = random.Random(23), list[str]()
    for _ in range(FILES):
        (tmp_path / "f.yaml").write_bytes(hostile(good, chance))
        try:
            read(tmp_path)
        except InvalidPolicy as reason:
            mistakes += reason.mistakes
    assert len(mistakes) > FILES // 2
    assert [mistake for mistake in mistakes if not re.match(r"f\.yaml:\d+: ", mistake)] == []


@pytest.mark.parametrize("option", ["--policy", "--envoy"])
@pytest.mark.parametrize(
    ("data", "told"),
    [
        (b"a: 1\nb: \xff\n", "f.yaml:2: not UTF-8: found the byte 0xff"),
        (b"a: 1\r\nb: \x04\r\n", "f.yaml:2: not YAML: the character #x0004 is not allowed"),
        (b"a: [\n", "f.yaml:2: not YAML: "),
    ],
)
def test_bytes_that_are_no_text_have_a_line(
    tmp_path: Path, option: str, data: bytes, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """`headgate serve --check` tells the line of the byte or of the character, in one line without a traceback."""
    (tmp_path / "f.yaml").write_bytes(data)
    given = tmp_path if option == "--envoy" else tmp_path / "f.yaml"
    assert main(["serve", "--check", option, str(given)]) == 1
    said = capsys.readouterr().err
    assert told in said and len(said.splitlines()) == 1
