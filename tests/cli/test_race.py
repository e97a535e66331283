"""`headgate race`: the command around the race."""

from __future__ import annotations

import pytest

from headgate.lab.race import contest

pytestmark = pytest.mark.engineless


def test_the_race_is_printed(command, server, monkeypatch):
    """The table of the server that was given; here with two contestants only."""
    monkeypatch.setattr(contest, "COPIED", contest.COPIED[1:2])
    monkeypatch.setattr(contest, "OURS", contest.OURS[:1])
    code, printed, complained = command("race", "--store", server.url)
    assert (code, complained) == (0, "")
    rows = [line.split() for line in printed.splitlines()]
    assert rows[3:5] == [["INCR,", "then", "EXPIRE", "30", "30", "1"], ["headgate,", "token-bucket", "30", "30", "0"]]


def test_a_wrong_url_is_an_error(command):
    """One line on stderr, exit code 1."""
    assert command("race", "--store", "nowhere") == (
        1, "", "headgate: a race needs one server, --store redis://, rediss:// or unix://; got no scheme\n"
    )  # fmt: skip
