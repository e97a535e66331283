"""Policies on a log: each rule's effect, the change against an older policy, and what a log cannot answer."""

from __future__ import annotations

import pytest

from headgate import InvalidCall, InvalidPolicy
from headgate.clock import SECOND
from headgate.lab import Log, replay_policy
from headgate.lab.policies import Change, ChangedClient, RuleEffect

TIME = "[12/May/2024:00:00:{:02} +0000]"


@pytest.fixture
def log_of(tmp_path):
    """Writes requests (second, address, request line, status) as a common log, and opens it."""

    def write(*requests, key="ip"):
        lines = [f'{ip} - {ip[-1]} {TIME.format(second)} "{line}" {status} 5' for second, ip, line, status in requests]
        (tmp_path / "access.log").write_text("\n".join(lines) + "\n")
        return Log([tmp_path / "access.log"], key=key)

    return write


@pytest.fixture
def policy_of(tmp_path):
    def write(text, name="new.yaml"):
        (tmp_path / name).write_text(text)
        return tmp_path / name

    return write


PAGES = [(second, "10.0.0.1", "GET /page?a=1 HTTP/1.1", 200) for second in range(5)]
LOGINS = [
    (second, "10.0.0.2", "POST /login HTTP/1.1", status) for second, status in enumerate((401, 200, 401, 401, 401))
]
BY_RULE = """
rules:
  - {name: pages, match: {path: /page}, key: ip, limits: 3/minute by sliding-log}
  - {name: login, match: {method: POST, path: /login}, key: ip, limits: 2/minute by sliding-log,
     count: {when: {status: 401}}}
"""


def effects(replayed):
    return [(rule.name, rule.matched, rule.refused, rule.clients) for rule in replayed.new.rules]


def test_each_rule_tells_what_it_would_have_done(log_of, policy_of):
    """Rules match by method and path, and `count.when` gives back what the log's own status does not count."""
    replayed = replay_policy(log_of(*PAGES, *LOGINS), policy_of(BY_RULE))
    assert effects(replayed) == [("pages", 5, 2, 1), ("login", 5, 2, 1)]
    assert (replayed.requests, replayed.clients, replayed.new.refused) == (10, 2, 4)


def test_a_rule_may_count_by_a_part_of_the_path(log_of, policy_of):
    """Each `{id}` has a count of its own, which all clients share."""
    paths = [(second, f"10.0.0.{second}", f"GET /users/{second % 2} HTTP/1.1", 200) for second in range(1, 8)]
    rule = "rules: [{name: user, match: {path: '/users/{id}'}, key: {param: id}, limits: 2/minute by sliding-log}]"
    assert effects(replay_policy(log_of(*paths), policy_of(rule))) == [("user", 7, 3, 3)]


def test_a_change_tells_which_clients_notice_it(log_of, policy_of):
    """Newly refused: passed by the old policy only. Let in: passed by the new policy only."""
    new = policy_of(BY_RULE)
    old = policy_of(BY_RULE.replace("3/minute", "4/minute").replace("2/minute", "1/minute"), "old.yaml")
    replayed = replay_policy(log_of(*PAGES, *LOGINS), new, old)
    assert replayed.newly_refused == Change(1, 1, (ChangedClient("10.0.0.1", 5, 1, errors=0),))
    assert replayed.let_in == Change(2, 1, (ChangedClient("10.0.0.2", 5, 2, errors=4),))
    assert replayed.old is not None and replayed.old.refused == 5


def test_refusals_are_counted_over_time(log_of, policy_of):
    """A series has the requests of each second, and those that the new and the old policy refuse."""
    old = policy_of("rules: [{name: all, key: ip, limits: 4/minute by sliding-log}]", "old.yaml")
    series = replay_policy(log_of(*PAGES), policy_of(BY_RULE), old).series
    assert (series.width, series.offered) == (SECOND, (1, 1, 1, 1, 1))
    assert series.refused == ((0, 0, 0, 1, 1), (0, 0, 0, 0, 1))
    assert replay_policy(log_of(*PAGES), policy_of(BY_RULE)).series.refused == ((0, 0, 0, 1, 1),)


def test_the_same_policy_changes_nothing(log_of, policy_of):
    """Two trials of one policy do not share a count."""
    policy = policy_of(BY_RULE)
    replayed = replay_policy(log_of(*PAGES, *LOGINS), policy, policy)
    assert replayed.newly_refused == replayed.let_in == Change(0, 0, ())


def test_rules_that_observe_delay_or_shadow_are_told_apart(log_of, policy_of):
    """An observing rule refuses nothing, a delaying rule holds what it admits, a shadow answers for the app."""
    policy = policy_of(
        """
rules:
  - {name: watch, match: {path: /page}, key: ip, limits: 3/minute by sliding-log, act: observe}
  - {name: slow, match: {path: /login}, key: ip, limits: 1/10s queue 3, act: delay}
  - {name: fake, match: {path: /trap}, key: ip, limits: 1/minute by sliding-log, act: shadow}
"""
    )
    traps = [(second, "10.0.0.3", "GET /trap HTTP/1.1", 200) for second in range(3)]
    replayed = replay_policy(log_of(*PAGES, *LOGINS, *traps), policy)
    watch, slow, fake = replayed.new.rules
    assert (watch.matched, watch.refused, watch.observed, watch.clients) == (5, 0, 2, 1)
    assert (slow.refused, slow.delayed, slow.longest_delay) == (2, 2, 18.0)
    assert fake == RuleEffect("fake", "1/minute by sliding-log", 3, 0, 2, 0, 0, 0.0, 1)
    assert replayed.new.refused == 4


def test_lists_come_before_the_rules(log_of, policy_of):
    """`allow` passes everything of a client, `deny` refuses it without a limit."""
    policy = policy_of(f"allow: {{ip: 10.0.0.1}}\ndeny: {{ip: 10.0.0.2}}{BY_RULE}")
    replayed = replay_policy(log_of(*PAGES, *LOGINS), policy)
    assert (replayed.new.refused, replayed.new.denied) == (5, 5)


NEEDY = """
plan: {trusted_header: x-plan}
shed: {limit: 40}
allow: {header: {x-monitor: "1"}}
rules:
  - {name: pages, key: ip, limits: 100/minute}
  - {name: tenant, key: {header: x-tenant}, limits: 100/minute}
  - {name: account, key: user, limits: 100/minute}
  - {name: session, key: {cookie: sid}, limits: 100/minute, match: {host: example.com}}
  - {name: org, key: [ip, {claim: org}], limits: 100/minute, exempt: {any: [{header: {x-test: "1"}}]}}
  - {name: slots, key: ip, limits: 5 in flight}
  - {name: tokens, key: ip, limits: 100/minute, cost: {after: {header: x-cost}}}
"""


def test_what_a_log_does_not_have_is_listed_with_the_rules_that_need_it(log_of, policy_of):
    """A rule that would count by something else is not replayed: its figures would not be true."""
    replayed = replay_policy(log_of(*PAGES), policy_of(NEEDY))
    assert [rule.name for rule in replayed.new.rules] == ["pages"]
    assert replayed.new.skipped == {
        "tenant": "header x-tenant",
        "account": "user",
        "session": "host, cookie sid",
        "org": "header x-test, claim org",
        "slots": "the time that requests were in flight",
        "tokens": "response header x-cost",
        "allow": "header x-monitor",
        "shed": "a server under load",
        "plan": "the plan of each request; each gets the default one",
    }
    assert "  session needs host, cookie sid" in str(replayed)


def test_rules_by_user_are_replayed_by_user(log_of, policy_of):
    """With `key="user"` the log's user is the user, and rules that count by address are left out."""
    policy = policy_of("rules: [{name: u, key: user, limits: 3/minute}, {name: a, key: ip, limits: 1/minute}]")
    replayed = replay_policy(log_of(*PAGES, key="user"), policy)
    assert effects(replayed) == [("u", 5, 2, 1)]
    assert replayed.new.skipped == {"a": "ip"}


def test_a_policy_that_the_log_cannot_answer_at_all_is_an_error(log_of, policy_of):
    """An empty table would look like a policy that refuses nothing."""
    with pytest.raises(InvalidPolicy, match="tenant needs header x-tenant"):
        replay_policy(log_of(*PAGES), policy_of("rules: [{name: tenant, key: {header: x-tenant}, limits: 1/minute}]"))


def test_mistakes_of_a_policy_have_their_lines(log_of, policy_of):
    """A policy is read as everywhere else: all mistakes at once."""
    with pytest.raises(InvalidPolicy, match=r"new.yaml:2: .*limit"):
        replay_policy(log_of(*PAGES), policy_of("rules:\n  - {key: ip, limits: 5/fortnight}\n"))


def test_another_key_than_address_or_user_is_refused(tmp_path, policy_of):
    """A policy reads requests by address or user; any other field would be counted as if it were one."""
    (tmp_path / "log.csv").write_text("ts,client\n1700000000,a\n1700000001,b\n")
    log = Log([tmp_path / "log.csv"], fields={"time": "ts", "key": "client"}, key="client")
    with pytest.raises(InvalidCall, match="the address or the user"):
        replay_policy(log, policy_of(BY_RULE))


def test_the_text_lists_every_rule_and_both_changes(log_of, policy_of):
    """The terminal shows the rules of both policies, and the clients that notice."""
    new, old = policy_of(BY_RULE), policy_of(BY_RULE.replace("3/minute", "4/minute"), "old.yaml")
    lines = str(replay_policy(log_of(*PAGES, *LOGINS), new, old)).splitlines()
    assert "new.yaml: 4 requests refused" in lines
    assert "pages        5        2        1  3/minute by sliding-log" in lines
    assert "1 request of 1 client: newly refused" in lines
    assert "10.0.0.1         5              1      0%" in lines
    assert "0 requests of 0 clients: let in again" in lines
