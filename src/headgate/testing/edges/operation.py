"""Tests of operation: stores that do not answer, policies that change, and tools for tests."""

from __future__ import annotations

import asyncio
import logging
import tempfile
from pathlib import Path
from typing import Any

from headgate.testing.control import disabled, frozen, reset_all
from headgate.testing.edges.app import Endpoint
from headgate.testing.edges.browser import Serving, logged

NOWHERE = "redis://127.0.0.1:9?deadline=0.2"
"""The URL of a store that does not answer."""


def policy_of(limits: str, more: str = "") -> str:
    """Return the text of a policy file."""
    return f'{{"rules": [{{"name": "api", "key": "ip", "limits": "{limits}"}}]{more}}}'


class Operation(Serving):
    """Changes while an app runs."""

    away = NOWHERE
    """The URL of a store that does not answer."""

    def test_while_the_store_is_away_each_rule_follows_its_on_error(self) -> None:
        """While the store does not answer, requests pass, are counted in this process, or get 503."""
        for where in self.places:
            for on_error, expected in (
                ("allow", [200, 200, 200]),
                ("local", [200, 429, 429]),
                ("deny", [503, 503, 503]),
                ("raise", [503, 503, 503]),
            ):
                rule = {"limits": "1/hour", "on_error": on_error}
                with logged("headgate.policy", logging.WARNING), self.limiting(where, rule, store=self.away) as site:
                    assert site.codes(times=3) == expected, (where, on_error)

    def test_a_policy_file_is_read_again_and_counts_stay(self) -> None:
        """After a reload, the new numbers and the new style of fields apply to the counts made before."""
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "policy.json"
            file.write_text(policy_of("2/minute by fixed-window"))
            with self.site(policy=file) as site:
                assert site.codes(times=3) == [200, 200, 429]
                file.write_text(policy_of("4/minute by fixed-window", ', "headers": "x-ratelimit"'))
                assert site.limits.reload() is True
                assert site.limits.policy.rules[0].name == "api"
                answer = site.ask()
                assert (answer.fields["x-ratelimit-limit"], answer.fields["x-ratelimit-remaining"]) == ("4", "1")
                assert "ratelimit" not in answer.fields
                assert site.codes(times=2) == [200, 429]

    def test_a_policy_file_with_mistakes_changes_nothing(self) -> None:
        """If a reload finds mistakes, the old policy stays in use, and the log shows the mistakes."""
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "policy.json"
            file.write_text(policy_of("9/minute"))
            with self.site(policy=file) as site:
                file.write_text(policy_of("many"))
                with logged("headgate.policy", logging.ERROR) as log:
                    assert site.limits.reload() is False
                assert "cannot read the limit 'many'" in log[0]
                assert site.ask().fields["ratelimit-policy"] == '"api";q=9;w=60'
                file.write_text(policy_of("8/minute"))
                assert site.limits.reload() is True
                assert site.ask().fields["ratelimit-policy"] == '"api";q=8;w=60'

    def test_one_key_of_a_rule_is_looked_at_and_reset(self) -> None:
        """`peek` and `reset` find a key by the name of its rule and the value of the part, in any place."""
        secret: dict[str, Any] = {"x_api_key": "s3cret"}
        for where in self.places:
            rule = {"name": "key-operated", "key": {"header": "x-api-key"}, "limits": "2/hour; 9/day"}
            with self.limiting(where, rule) as site:
                assert site.codes(times=3, **secret) == [200, 200, 429], where
                left = site.limits.peek("key-operated", "s3cret")
                assert (left.allowed, left.remaining, left.limit) == (False, 0, 2), where
                assert [verdict.remaining for verdict in left.verdicts] == [0, 7], where
                assert asyncio.run(site.limits.apeek("key-operated", "other")).remaining == 2, where
                site.limits.reset("key-operated", "s3cret")
                assert site.codes(times=3, **secret) == [200, 200, 429], where
                asyncio.run(site.limits.areset("key-operated", "s3cret"))
                assert site.codes(**secret) == [200], where

    finds_endpoints = True
    """Whether the edge knows the endpoints of its app before any request."""

    def test_a_limit_without_a_name_is_found_before_any_request(self) -> None:
        """`peek` and `reset` find it by the name of its route, under which it counts, in an app that served nothing."""
        secret: dict[str, Any] = {"x_api_key": "s3cret"}
        if "endpoint" not in self.places or not self.finds_endpoints:
            return
        each = {"key": {"header": "x-api-key"}, "limits": "2/hour"}
        endpoint = Endpoint(path="/items/{id}", limits=[each])
        with self.site(endpoint) as site:
            assert site.codes("/items/7", **secret) == [200]
            (name,) = site.limits.counts()
        with self.site(endpoint) as site:
            assert site.limits.peek(name, "s3cret").remaining == 2
            assert site.codes("/items/7", "/items/8", "/items/9", **secret) == [200, 200, 429]
            assert site.limits.peek(name, "s3cret").remaining == 0
            site.limits.reset(name, "s3cret")
            assert site.codes("/items/7", **secret) == [200]

    def test_each_edge_counts_and_lists_the_keys_refused(self) -> None:
        """`counts` and `snapshot` have the results of a rule, its limits and the key that was refused, in any place."""
        for where in self.places:
            rule = {"name": "key-counted", "key": "ip", "limits": "2/hour"}
            with self.limiting(where, rule) as site:
                assert site.codes(times=3) == [200, 200, 429], where
                counts = site.limits.counts()["key-counted"]
                assert (counts.allowed, counts.refused, sum(counts)) == (2, 1, 3), where
                seen = site.limits.snapshot()
                (told,) = (each for each in seen["rules"] if each["rule"] == "key-counted")
                assert (told["counts"]["allowed"], told["counts"]["refused"]) == (2, 1), where
                assert [each["text"] for each in told["limits"]] == ["2/hour as key-counted"], where
                assert [(each["rule"], each["count"]) for each in seen["refused_keys"]] == [("key-counted", 1)], where
                assert site.limits.snapshot(keys=False)["refused_keys"] == [], where

    def test_one_key_of_a_rule_is_banned_and_unbanned(self) -> None:
        """`ban` refuses a key by the name of its rule and the value of the part, in any place; `unban` ends it."""
        for where in self.places:
            rule = {"name": "key-banned", "key": {"header": "x-api-key"}, "limits": "9/hour"}
            with self.limiting(where, rule) as site:
                assert site.codes(x_api_key="s3cret") == [200], where
                site.limits.ban("key-banned", "s3cret", "1h")
                refused = site.ask(x_api_key="s3cret")
                assert refused.status == 429, where
                assert 3590 < int(refused.fields["retry-after"]) <= 3600, where
                assert site.codes(x_api_key="other") == [200], where
                assert not site.limits.peek("key-banned", "s3cret"), where
                asyncio.run(site.limits.aunban("key-banned", "s3cret"))
                assert site.codes(x_api_key="s3cret") == [200], where
                asyncio.run(site.limits.aban("key-banned", "s3cret", 60))
                assert site.codes(x_api_key="s3cret") == [429], where
                site.limits.unban("key-banned", "s3cret")
                assert site.codes(x_api_key="s3cret") == [200], where
                assert site.limits.peek("key-banned", "s3cret").remaining == 6, where

    def test_a_block_of_one_rule_may_hold_under_the_others(self) -> None:
        """A client that `blocks: all` has blocked is refused by rules that it keeps to; other clients are not."""
        login = {"match": {"header": {"x-login": "1"}}, "limits": "1/hour", "for": "1h", "blocks": "all"}
        rules = [{"name": "login", "key": "ip", **login}, {"name": "api", "key": "ip", "limits": "100/hour"}]
        with self.site(policy={"rules": rules}) as site:
            assert site.codes(times=2) == [200, 200]
            assert site.codes(x_login="1", times=2) == [200, 429]
            assert site.codes(times=2) == [429, 429]
            assert site.codes(client=self.other_client) == [200]
            site.limits.reset("login", self.client)
            assert site.codes() == [200]

    def test_limits_may_be_disabled_by_an_argument(self) -> None:
        """With `enabled=False` every request passes without fields, in any place; keys can still be looked at."""
        for where in self.places:
            rule = {"name": "key-disabled", "limits": "1/hour", "for": "1h"}
            with self.limiting(where, rule, enabled=False) as site:
                assert site.codes(times=3) == [200] * 3, where
                assert not {name for name in site.ask().fields if name.startswith(("ratelimit", "retry"))}, where
                if where == "policy":
                    assert site.limits.peek("key-disabled", self.client).remaining == 1

    def test_a_whole_policy_may_only_observe(self) -> None:
        """With `mode: observe` no rule and no list refuses, in any place; each refusal that it would make is logged."""
        for where in self.places:
            for act in ("deny", "shadow"):
                rule = {"limits": "1/hour", "act": act}
                policy = {"mode": "observe"} if where == "policy" else {"mode": "observe", "rules": []}
                with logged("headgate.policy") as log, self.limiting(where, rule, policy=policy) as site:
                    assert site.codes(times=3) == [200] * 3, (where, act)
                assert [line.partition(": ")[0] for line in log] == ["rule api (observe) would refuse"] * 2, (
                    where,
                    act,
                )
        with (
            logged("headgate.policy") as log,
            self.site(policy={"mode": "observe", "deny": {"path": "/"}, "rules": []}) as site,
        ):
            assert site.codes(times=2) == [200, 200]
        assert log == ["the policy (observe) would refuse: 403"] * 2

    def test_a_policy_may_be_off(self) -> None:
        """With `mode: off` no rule, no list and no limit of an endpoint does anything."""
        for where in self.places:
            policy = {"mode": "off", "deny": {"path": "/"}, **({} if where == "policy" else {"rules": []})}
            with logged("headgate.policy") as log, self.limiting(where, {"limits": "1/hour"}, policy=policy) as site:
                assert site.codes(times=3) == [200] * 3, where
            assert log == [], where

    def test_limits_are_frozen_switched_off_and_forgotten_by_one_line(self) -> None:
        """`frozen`, `disabled` and `reset_all` accept the app's limits, in any place, and restore them afterwards."""
        for where in self.places:
            with self.limiting(where, {"limits": "1/hour"}) as site:
                assert site.codes(times=2) == [200, 429], where
                with frozen(site.limits) as clock:
                    assert site.codes(times=2) == [200, 429], where
                    clock.advance(3599.999)
                    assert site.codes() == [429], where
                    clock.advance(0.001)
                    assert site.codes(times=2) == [200, 429], where
                with disabled(site.limits):
                    assert site.codes(times=3) == [200] * 3, where
                assert site.codes() == [429], where
                reset_all(site.limits)
                assert site.codes(times=2) == [200, 429], where

    def test_limits_that_are_switched_off_are_so_in_every_store_of_the_policy(self) -> None:
        """`disabled` also covers a rule that names a store of its own."""
        rule = {"key": "ip", "limits": "1/hour", "store": "near"}
        with self.site(policy={"stores": {"near": "memory://"}, "rules": [rule]}) as site:
            with disabled(site.limits):
                assert site.codes(times=3) == [200] * 3
            assert site.codes(times=2) == [200, 429]
