"""Tests of operation: stores that do not answer, policies that change, and tools for tests."""

from __future__ import annotations

import asyncio
import logging
import tempfile
from pathlib import Path
from typing import Any

from headgate.testing.control import disabled, frozen, reset_all
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
