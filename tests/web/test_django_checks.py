"""Django's system checks of the settings of a site."""

from __future__ import annotations

from typing import Any

import pytest
from django.core.checks import run_checks
from django.core.exceptions import ImproperlyConfigured
from django.test import Client, override_settings

from headgate.web.django import RateLimitMiddleware
from headgate.web.refusal import Refusal
from tests.support.django_site import AUTH, LIMITS, SESSIONS
from tests.web.test_django import API, tenant

pytestmark = pytest.mark.engineless


class TestChecks:
    """What `manage.py check` tells."""

    @staticmethod
    def told(deploy: bool = False, **given: Any) -> list[tuple[str, str]]:
        """Ours among the messages."""
        with override_settings(HEADGATE={name.upper(): value for name, value in given.items()}):
            messages = run_checks(include_deployment_checks=deploy)
        return [(each.id, each.msg) for each in messages if each.id and each.id.startswith("headgate")]

    def test_nothing_is_wrong(self):
        """With everything set."""
        told = self.told(
            store="redis://cache", policy=API, default="100/minute", key=["ip", "user"], trusted_proxies=["10.0.0.1"],
            exempt_admin=True, user="tests.web.test_django.tenant", plan="tests.support.django_site.plan_of",
            enabled=True,
            refusal=Refusal("no"), refusal_view="tests.support.django_site.refusal", forwarded_header="forwarded",
        )  # fmt: skip
        assert told == []

    def test_an_unknown_key_has_a_suggestion(self):
        """A key that resembles none is answered with the list of keys."""
        (first, second) = self.told(trusted_proxy=["10.0.0.1"], colour="red")
        assert first == ("headgate.E001", "HEADGATE['TRUSTED_PROXY'] is unknown; did you mean 'TRUSTED_PROXIES'?")
        assert second[1].startswith("HEADGATE['COLOUR'] is unknown; use one of ENABLED, STORE, POLICY")

    def test_every_mistake_is_told_at_once(self):
        """Of the policy, of limits, of proxies, of stores and of functions."""
        wrong = {"rules": [{"key": "ip", "limits": "many"}, {"ky": "ip", "limits": "1/minute", "key": "ip"}]}
        told = self.told(
            policy=wrong, default="5 a minute", trusted_proxies=["10.0.0.0/99"], store="mysql://", user="nowhere.user",
            plan=3, refusal="no", enabled="False",
        )  # fmt: skip
        assert {id_ for id_, _ in told} == {"headgate.E002"}
        texts = [text for _, text in told]
        for beginning in (
            "HEADGATE['ENABLED'] must be True or False; got 'False'",
            "HEADGATE['USER']: No module named 'nowhere'",
            "HEADGATE['PLAN']: expected a function, or the dotted path of one; got 3",
            "HEADGATE['DEFAULT']: limits: cannot read the limit '5 a minute'",
            "HEADGATE['REFUSAL'] must be a headgate.web.refusal.Refusal",
            "HEADGATE['TRUSTED_PROXIES']: ",
            "HEADGATE['STORE']: no store for 'mysql' URLs",
            "HEADGATE['POLICY']: rules[0].limits: cannot read the limit 'many'",
            "HEADGATE['POLICY']: rules[1].ky: unknown field 'ky'; did you mean 'key'?",
        ):
            assert [text for text in texts if text.startswith(beginning)], (beginning, texts)
        assert len(texts) == 9

    def test_a_policy_in_a_file(self, tmp_path):
        """Each mistake has its line; and a check does not open a shared store."""
        file = tmp_path / "policy.yaml"
        file.write_text("rules:\n  - {key: ip, limits: 1/fortnight}\n")
        ((_, text),) = self.told(policy=file, store=f"shared://{tmp_path}/store")
        assert text.startswith("HEADGATE['POLICY']: policy.yaml:2: ")
        assert not (tmp_path / "store").exists()

    def test_limits_without_the_middleware(self):
        """Nothing would ask them; a class derived from ours does."""
        with override_settings(MIDDLEWARE=[SESSIONS, AUTH]):
            assert self.told(default="1/minute") == [
                ("headgate.E003", "Limits are configured, but the middleware is missing.")
            ]
        with override_settings(MIDDLEWARE=[SESSIONS, AUTH, "tests.web.test_django_checks.Derived"]):
            assert self.told(default="1/minute") == []

    def test_a_policy_by_user_before_anybody_is_known(self):
        """The policy is asked where the middleware stands, limits of views after every middleware."""
        by_user = {"rules": [{"key": ["ip", "user"], "limits": "1/minute"}]}
        with override_settings(MIDDLEWARE=[LIMITS, SESSIONS, AUTH]):
            ((id_, text),) = self.told(policy=by_user)
            assert (id_, text.partition(":")[0]) == (
                "headgate.E004",
                "The policy counts by user, but runs before AuthenticationMiddleware",
            )
            assert self.told(default="1/minute", key="user") == []
            assert self.told(policy=by_user, user=tenant) == []
        with override_settings(MIDDLEWARE=[LIMITS]):
            ((id_, text),) = self.told(default="1/minute", key="user")
            assert text == "Limits count by user, but AuthenticationMiddleware is missing: no request has a user."

    def test_memory_in_a_deployment(self):
        """Only where somebody asks about that."""
        assert self.told(default="1/minute") == []
        assert [id_ for id_, _ in self.told(deploy=True, default="1/minute")] == ["headgate.W001"]
        assert self.told(deploy=True, store="redis://cache") == []

    def test_a_site_with_mistakes_does_not_start(self):
        """Whether or not somebody checked."""
        for given, told in (({"DEFALT": "1/minute"}, "did you mean 'DEFAULT'"), ("1/minute", "must be a dict")):
            with override_settings(HEADGATE=given), pytest.raises(ImproperlyConfigured, match=told):
                Client().get("/")


class Derived(RateLimitMiddleware):
    pass
