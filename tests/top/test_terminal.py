"""`headgate top` on a terminal: the screens that a user sees, its keys, and clients that try to steer it."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from tests.support.snapshots import HOSTILE, page, recorded, rule, snapshot

pyte = pytest.importorskip("pyte")

from tests.support.terminals import InTerminal  # noqa: E402

pytestmark = pytest.mark.engineless
SCREENS = Path(__file__).parent / "screens"


def compare(name: str, lines: list[str]) -> None:
    """Compare a screen with the one on record; UPDATE_SCREENS=1 writes it, to be looked at."""
    file = SCREENS / f"{name}.txt"
    if os.environ.get("UPDATE_SCREENS"):
        file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    assert "\n".join(lines) + "\n" == file.read_text(encoding="utf-8")


def test_the_screen_at_80_by_24_its_keys_and_its_end():
    """The screen fits 80 x 24; s sorts, k changes the keys, p holds the screen, and q restores the terminal."""
    with page(recorded()) as served, InTerminal("headgate", "top", served.url, columns=80, lines=24) as terminal:
        compare("rules-80x24", terminal.until("60.0"))
        terminal.press("k")
        compare("busiest-80x24", terminal.until("busiest keys"))
        terminal.press("sss")
        by_name = [["api"], ["idle"], ["login"], ["next"]]
        terminal.until(lambda lines: [line.split()[:1] for line in lines[3:7]] == by_name)
        terminal.press("p")
        terminal.until("paused")
        served.answers.append(snapshot(9, [rule("later", 1, 0)]))
        asked = served.asked
        while served.asked < asked + 2:
            terminal.until("paused")
        assert "later" not in "\n".join(terminal.lines())
        terminal.press("p")
        terminal.until("later")
        terminal.press("q")
        assert terminal.end() == 0
        assert terminal.written.rstrip().endswith(b"\x1b[?25h") or b"\x1b[?1049l" in terminal.written


def test_the_screen_at_200_by_50_and_after_a_resize():
    """A large terminal shows more of each row; a terminal that becomes smaller is filled again at once."""
    with page(recorded()) as served, InTerminal("headgate", "top", served.url, columns=200, lines=50) as terminal:
        compare("rules-200x50", terminal.until("60.0"))
        terminal.resize(80, 24)
        terminal.until("5/minute by sliding-log", absent=True)
        compare("rules-80x24", terminal.until("60.0"))


def test_300_rules_and_hostile_keys_cannot_leave_their_cells():
    """The screen has the first rules and the number of the others; no byte of a key reaches the terminal unescaped."""
    answers = recorded()
    for each in answers:
        each["rules"] += [rule(f"rule-{at}", 0, 0) for at in range(300)]
        each["rules"][0]["rule"] = HOSTILE[0]
        each["policy"]["file"] = HOSTILE[2]
        each["stores"][0]["kind"] = HOSTILE[0]
    with page(answers) as served, InTerminal("headgate", "top", served.url, columns=80, lines=24) as terminal:
        lines = terminal.until("60.0")
        assert [line for line in lines if "more rules" in line] == ["and 293 more rules"]
        assert lines[-1] == "q quit   p pause   s sort   k keys"
        terminal.press("q")
        terminal.end()
    sent = terminal.written.decode()
    assert b"\x07" not in terminal.written
    assert not re.search("[\u202e\u2066\u0301]", sent)
    assert "x" * 81 not in sent
    known = re.sub(r"\x1b\[(?:\?(?:25|1049)[hl]|H|[\d;]*m|\d*;?\d*H|2J|\d*[A-K])", "", sent)
    assert "\x1b" not in known
    assert terminal.written.count(b"\x1b[31m") == 0


@pytest.mark.soak
def test_no_color_and_a_server_that_goes_away():
    """With NO_COLOR no colour is sent; a server that stops to answer is told, and its last screen stays."""
    env = {"NO_COLOR": "1"}
    with (
        page(recorded()) as served,
        InTerminal("headgate", "top", served.url, columns=80, lines=24, env=env) as terminal,
    ):
        terminal.until("60.0")
        served.status = 500
        lines = terminal.until("no answer")
        assert lines[2] == f"no answer: {served.url}/top answers 500"
        assert any("203.0.113.7" in line for line in lines)
        served.status = 200
        terminal.until("no answer", absent=True)
        terminal.press("q")
        assert terminal.end() == 0
    assert not re.search(rb"\x1b\[[\d;]*38;", terminal.written)


@pytest.mark.soak
def test_colours_are_those_of_the_playground():
    """Refusals are drawn in the playground's colour of refusals."""
    with page(recorded()) as served, InTerminal("headgate", "top", served.url, columns=80, lines=24) as terminal:
        terminal.until("60.0")
    assert b"38;2;255;133;82m      20.0" in terminal.written
