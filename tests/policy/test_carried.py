"""Budgets across a reload: a rule that changes its algorithm, period or name gives nobody a second budget."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import pytest

from headgate import MemoryStore
from headgate.testing import ManualClock
from headgate.web.wsgi import RateLimitMiddleware
from tests.support.edges import plain_wsgi, wsgi
from tests.support.inside import runtime_of

HOUR = 3600


class Site:
    """An app whose policy is a file, under a clock of the test's own."""

    def __init__(self, file: Path, rule: str, more: str = "") -> None:
        self.file = file
        self.clock = ManualClock()
        self.write(rule, more)
        self.app = RateLimitMiddleware(plain_wsgi, file, store=MemoryStore(clock=self.clock))

    def write(self, rule: str, more: str = "") -> None:
        new = self.file.with_suffix(".new")
        new.write_text(f"rules: [{{{rule}}}]\n{more}")
        os.replace(new, self.file)

    def change(self, rule: str, more: str = "") -> None:
        self.write(rule, more)
        assert self.app.reload() is True

    def admitted(self, of: int, client: str = "192.0.2.1") -> int:
        """Return the number of requests that pass, of this many."""
        return sum(wsgi(self.app, REMOTE_ADDR=client).status == 200 for _ in range(of))


@pytest.fixture
def site(tmp_path):
    return lambda rule, more="": Site(tmp_path / "policy.yaml", rule, more)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("name: api, key: ip, limits: 5/hour", "name: api, key: ip, limits: 5/hour by sliding-log"),
        ("name: api, key: ip, limits: 5/hour by sliding-log", "name: api, key: ip, limits: 5/hour by fixed-window"),
        ("name: api, key: ip, limits: 5/hour by fixed-window", "name: api, key: ip, limits: 5/2h by fixed-window"),
        ("name: api, key: ip, limits: 5/hour", "name: calls, key: ip, limits: 5/hour"),
        ("name: api, key: ip, limits: 5/hour", "name: calls, key: ip, limits: 5/hour by sliding-log"),
        ("name: api, key: ip, limits: 5/hour", "name: calls, key: ip, limits: 5/2h by fixed-window"),
        ("name: api, key: ip, limits: 5/hour", "name: api, key: ip, limits: 5/hour, for: 1s"),
        ("name: api, key: ip, limits: 5/hour, for: 1s", "name: api, key: ip, limits: 5/hour"),
        ("name: api, key: ip, limits: 5/hour", "name: api, key: ip, limits: 5/hour as calls"),
        ("name: api, key: ip, limits: 5/hour", "name: api, key: ip, limits: '5/hour block 1s, 2s'"),
        ("name: api, key: ip, limits: '5/hour block 1s, 2s'", "name: api, key: ip, limits: 5/hour"),
    ],
)
def test_a_changed_rule_gives_nobody_a_second_budget(site, old, new):
    """Neither a client that has used it up, nor one that has used a part."""
    site = site(old)
    assert site.admitted(9) == 5
    assert site.admitted(2, "192.0.2.2") == 2
    site.change(new)
    assert site.admitted(9) == 0
    assert site.admitted(9, "192.0.2.2") == 3
    assert site.admitted(9, "192.0.2.3") == 5


def test_an_old_limit_goes_once_its_period_is_over(site):
    """The old limit does not go a microsecond before; afterwards the new one is alone, also in the header fields."""
    site = site("name: api, key: ip, limits: 5/hour by sliding-log")
    site.clock.advance(1000)
    assert site.admitted(9) == 5
    site.change("name: api, key: ip, limits: 9/2h by fixed-window")
    site.clock.advance(HOUR - 0.000_001)
    assert site.admitted(5) == 0
    assert wsgi(site.app).fields["ratelimit-policy"].count("api") == 2
    site.clock.advance(0.000_001)
    assert site.admitted(20) == 9
    assert wsgi(site.app).fields["ratelimit-policy"].count("api") == 1


@pytest.mark.parametrize("new", ["9/hour by sliding-log", "9/minute", "1/minute burst 9"])
def test_a_limit_that_is_raised_in_another_form_takes_effect_at_once(site, new):
    """The old counts are read by the new numbers."""
    site = site("name: api, key: ip, limits: 5/hour by fixed-window")
    assert site.admitted(9) == 5
    site.change(f"name: api, key: ip, limits: {new}")
    assert site.admitted(9) >= 4


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("[9 in flight, 5/hour]", "5/2h"),
        ("[9/minute, 5/hour]", "5/hour by sliding-log"),
        ("5/hour", "[9/minute, 5/hour by sliding-log]"),
        ("[9/hour as reads, 5/hour as all]", "[5/hour by sliding-log as all, 9/hour by sliding-log as reads]"),
        ("[9/minute, 5/hour]", "[5/hour by fixed-window, 9/second]"),
    ],
)
def test_a_limit_that_changes_while_others_come_or_go_is_not_taken_for_one_of_them(site, old, new):
    """Its own successor takes up its counts, wherever it stands in the list."""
    site = site(f"name: api, key: ip, limits: {old}")
    assert site.admitted(5) == 5
    site.change(f"name: api, key: ip, limits: {new}")
    site.clock.advance(1)
    assert site.admitted(9) == 0
    assert site.admitted(9, "192.0.2.2") == 5


RELOADS = {
    "lowered in another form": [("api", "9/hour by fixed-window", 4, 4), ("api", "5/hour by sliding-log", 9, 1)],
    "there and back again": [
        ("api", "5/hour", 3, 3),
        ("api", "5/hour by sliding-log", 1, 1),
        ("api", "5/hour by fixed-window", 9, 1),
        ("calls", "5/hour by fixed-window", 9, 0),
        ("api", "5/hour", 9, 0),
    ],
    "over another period, in which 100 an hour are 1.67 a minute and let two pass": [
        ("api", "1/minute by fixed-window", 9, 1),
        ("api", "100/hour by fixed-window", 9, 1),
    ],
    "renamed twice": [("api", "5/hour", 3, 3), ("calls", "5/hour", 0, 0), ("requests", "5/hour", 9, 2)],
    "each plan by itself, and a limit beside another that stays": [
        ("api", "{default: [3/hour, 100/day], gold: 5/hour}", 9, 3),
        ("api", "{default: [3/hour by sliding-log, 100/day], gold: 7/hour}", 9, 0),
    ],
}
"""The names and limits of a rule, one after the other, and of how many requests how many pass."""


@pytest.mark.parametrize("case", RELOADS)
def test_reloads_in_a_row_keep_every_count(site, case):
    """Units that were used under the limits and names of before count under the new ones, at once."""
    (name, limits, *_), *_ = RELOADS[case]
    site = site(f"name: {name}, key: ip, limits: {limits}")
    for at, (name, limits, asked, admitted) in enumerate(RELOADS[case]):
        if at:
            site.change(f"name: {name}, key: ip, limits: {limits}")
        assert site.admitted(asked) == admitted


@pytest.mark.parametrize(
    ("new", "more", "why"),
    [
        (
            "name: api, key: [ip, method], limits: 5/hour",
            "",
            "rule api has new counts: its key is now ip, method",
        ),
        (
            "name: api, key: ip, limits: 5/hour",
            "namespace: other",
            "rule api has new counts: the namespace is now",
        ),
        (
            "name: api, key: ip, limits: 5/hour",
            "pepper: {env: HOME}",
            "rule api has new counts: its keys are hashed",
        ),
    ],
)
def test_a_rule_whose_counts_cannot_be_found_begins_anew_and_is_named(site, caplog, new, more, why):
    """In the log, once."""
    site = site("name: api, key: ip, limits: 5/hour")
    assert site.admitted(9) == 5
    with caplog.at_level(logging.INFO, "headgate"):
        site.change(new, more)
        site.admitted(3)
    assert [why in record.getMessage() for record in caplog.records].count(True) == 1


def test_of_several_renamed_rules_each_takes_up_the_counts_of_its_like(site):
    """Rules of the same limits belong together, whatever their order; what is left belongs to the rule that is left."""
    rest = "match: {path: /**}, key: ip"
    site = site(f"name: a, {rest}, limits: 5/hour}}, {{name: b, {rest}, limits: 7/hour by sliding-log")
    assert site.admitted(9) == 5
    site.change(f"name: c, {rest}, limits: 7/hour by sliding-log}}, {{name: d, {rest}, limits: 6/hour by fixed-window")
    fields = wsgi(site.app, REMOTE_ADDR="192.0.2.1").fields
    assert fields["ratelimit"] == '"c";r=7;t=0, "b";r=2;t=3600, "d";r=6;t=0, "a";r=0;t=3600'


def test_a_plan_that_was_not_listed_before_takes_up_the_counts_of_the_default(tmp_path):
    """By which its requests were counted until now."""
    file, clock = tmp_path / "policy.yaml", ManualClock()
    rule = "rules: [{{name: api, key: ip, limits: {}}}]"
    file.write_text(rule.format("5/hour"))
    app = RateLimitMiddleware(plain_wsgi, file, store=MemoryStore(clock=clock), plan=lambda environ: "gold")
    assert [wsgi(app).status for _ in range(6)] == [200] * 5 + [429]
    file.write_text(rule.format("{default: 5/hour, gold: 6/hour by sliding-log}"))
    assert app.reload() is True
    assert wsgi(app).status == 429


@pytest.mark.parametrize(
    ("old", "new", "level", "line"),
    [
        (
            "name: a, key: ip, limits: 5/hour",
            "name: a, key: ip, limits: 5/hour}, {name: b, key: everyone, limits: 9/hour",
            "INFO",
            "rule b is new, and so are its counts",
        ),
        (
            "match: {path: /a}, key: ip, limits: 5/hour",
            "match: {path: /b}, key: ip, limits: 9/hour}, {match: {path: /a}, key: ip, limits: 5/hour",
            "WARNING",
            "rule rule-1 is about other requests than before, and goes on with the same counts: a rule without a name "
            "is known by its place in the list; give it a name",
        ),
    ],
    ids=["new", "another in its place"],
)
def test_the_log_names_rules_that_are_new_or_have_moved(site, caplog, old, new, level, line):
    """Once, and a rule with a name of its own may change its requests without a word."""
    site = site(old)
    with caplog.at_level(logging.INFO, "headgate"):
        site.change(new)
    told = [(record.levelname, record.getMessage()) for record in caplog.records]
    assert told.count((level, line)) == 1


def test_the_log_names_what_goes_on(site, caplog):
    """The rule, both limits, and for how long."""
    site = site("name: api, key: ip, limits: 5/hour")
    with caplog.at_level(logging.INFO, "headgate"):
        site.change("name: api, key: ip, limits: 5/hour by sliding-log")
    words = "rule api: 5/hour as api is counted beside 5/hour by sliding-log as api for 3600 s"
    assert [record.getMessage() for record in caplog.records].count(words) == 1


def test_other_numbers_alone_carry_nothing(site, caplog):
    """The state is the same one."""
    site = site("name: api, key: ip, limits: 5/hour")
    assert site.admitted(2) == 2
    with caplog.at_level(logging.WARNING, "headgate"):
        site.change("name: api, key: ip, limits: 7/hour burst 9")
    assert not caplog.records
    assert wsgi(site.app).fields["ratelimit-policy"].count("api") == 1


@pytest.mark.parametrize("act", ["delay", "{delay: {at_most: 200ms}}"])
def test_a_rule_that_begins_to_delay_counts_by_its_old_window_and_holds_by_its_new_bucket(site, act):
    """The window has no queue in which a request could be held: it lets pass or refuses, as before."""
    site = site("name: api, key: ip, limits: 5/minute by sliding-log")
    runtime_of(site.app).clock = site.clock
    assert site.admitted(3) == 3
    site.change(f"name: api, key: ip, limits: 5/minute, act: {act}")
    assert site.admitted(1) == 1
    site.clock.advance(12)
    assert site.admitted(2) == 1
    site.clock.advance(48)
    assert site.admitted(1) == 1
