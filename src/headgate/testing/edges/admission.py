"""Tests of admission: the responses to admitted and refused requests, and which rules apply."""

from __future__ import annotations

import json
from typing import Any

from headgate.testing.edges.app import Asked, Endpoint, Reply
from headgate.testing.edges.browser import Serving, logged
from headgate.web.refusal import Refusal

FIELDS = ("ratelimit-policy", "ratelimit", "retry-after", "cache-control", "content-type")
PROBLEM = {
    "type": "https://iana.org/assignments/http-problem-types#quota-exceeded",
    "title": "The quota is used up",
    "status": 429,
    "violated-policies": ["api"],
    "detail": "Retry after 30 s.",
}
SHADOW = {"shadow": {"status": 202, "body": "ok ü", "content_type": "text/x-ok"}}


class Admission(Serving):
    """The responses to admitted and to refused requests."""

    def test_an_admitted_response_is_the_apps_own_and_tells_what_is_left(self) -> None:
        """The app's status, headers and body are unchanged; `RateLimit-Policy` and `RateLimit` are added once each."""

        def handle(asked: Asked) -> Reply:
            return Reply(201, {"x-app": "1"}, b"hello world")

        for where in self.places:
            with self.limiting(where, handle=handle) as site:
                answer = site.ask()
            assert (answer.status, answer.body, answer.fields["x-app"]) == (201, b"hello world", "1"), where
            assert answer.fields["ratelimit-policy"] == '"api";q=2;w=60', where
            assert answer.fields["ratelimit"] == '"api";r=1;t=30', where
            assert {"retry-after", "cache-control"}.isdisjoint(answer.fields), where

    def test_a_refusal_has_everything_a_client_needs(self) -> None:
        """The refusal tells the reason and the retry time, and forbids caching; the app is not called."""
        for where in self.places:
            called: list[str] = []

            def handle(asked: Asked, called: list[str] = called) -> Reply:
                called.append(asked.path)
                return Reply()

            with self.limiting(where, handle=handle) as site:
                assert site.codes(times=2) == [200, 200], where
                answer = site.ask()
                assert (answer.status, json.loads(answer.body)) == (429, PROBLEM), where
                assert [answer.fields.get(name) for name in FIELDS] == [
                    '"api";q=2;w=60', '"api";r=0;t=60', "30", "no-store", "application/problem+json",
                ], where  # fmt: skip
                assert answer.fields["content-length"] == str(len(answer.body)), where
                assert called == ["/", "/"], where
                site.clock.advance(30)
                assert site.codes(times=2) == [200, 429], where

    def test_a_refused_head_has_no_body(self) -> None:
        """A refused HEAD gets the fields of a refused GET, and no body."""
        for where in self.places:
            with self.limiting(where, {"limits": "1/minute"}) as site:
                assert site.codes() == [200], where
                answer = site.ask(method="HEAD")
            assert (answer.status, answer.body, answer.fields["retry-after"]) == (429, b"", "60"), where

    def test_clients_choose_among_bodies(self) -> None:
        """The `Accept` of a refused request chooses its body: problem details, JSON or text."""
        for where in self.places:
            with self.limiting(where, {"limits": "1/minute"}) as site:
                assert site.codes() == [200], where
                answers = [site.ask(accept=kind) for kind in ("application/json", "text/plain", "*/*", "image/png")]
            assert [each.fields["content-type"] for each in answers] == [
                "application/json", "text/plain; charset=utf-8", "application/problem+json", "application/problem+json",
            ], where  # fmt: skip
            assert json.loads(answers[0].body) == {"error": "quota-exceeded", "retry_after": 60}, where
            assert answers[1].body == b"The quota is used up. Retry after 60 s.\n", where

    def test_the_body_of_a_refusal_may_be_the_apps(self) -> None:
        """A `Refusal` makes the body from the reason and the seconds; the fields stay the same."""
        mine = Refusal(lambda reason, decision, seconds: {"code": reason.status, "wait": seconds})
        for where in self.places:
            with self.limiting(where, {"limits": "1/minute"}, refusal=mine) as site:
                assert site.codes() == [200], where
                answer = site.ask()
            assert (answer.status, json.loads(answer.body)) == (429, {"code": 429, "wait": 60}), where
            assert (answer.fields["retry-after"], answer.fields["content-type"]) == ("60", "application/json"), where

    def test_no_more_is_told_than_the_rule_discloses(self) -> None:
        """`disclose` hides the numbers, or also the retry time, in fields and in bodies."""
        numbers = {"ratelimit-policy", "ratelimit"}
        for where in self.places:
            for disclose, passed, refused in (
                ("full", numbers, {*numbers, "retry-after"}),
                ("retry", set(), {"retry-after"}),
                ("none", set(), set()),
            ):
                with self.limiting(where, {"limits": "1/minute", "disclose": disclose}) as site:
                    first, second = site.ask(), site.ask()
                assert (first.status, second.status) == (200, 429), (where, disclose)
                watched = {*numbers, "retry-after"}
                assert watched & first.fields.keys() == passed, (where, disclose)
                assert watched & second.fields.keys() == refused, (where, disclose)
                assert (b"60" in second.body) is (disclose != "none"), (where, disclose)
                assert (b"api" in second.body) is (disclose == "full"), (where, disclose)

    def test_the_policy_chooses_the_style_of_the_fields(self) -> None:
        """The fields of limits at endpoints have the style of the policy."""
        for where in self.places:
            rules = {} if where == "policy" else {"rules": [{"match": {"path": "/x"}, "key": "ip", "limits": "1/day"}]}
            with self.limiting(where, policy={"headers": "x-ratelimit", **rules}) as site:
                fields = site.ask().fields
            assert fields["x-ratelimit-limit"] == "2" and fields["x-ratelimit-remaining"] == "1", where
            assert "ratelimit" not in fields, where

    def test_several_rules_are_one_decision(self) -> None:
        """If one rule refuses, no other rule is charged; the fields of an admitted response list all rules."""
        narrow = {"key": {"header": "x-key"}, "limits": "1/hour"}
        wide = {"name": "all", "key": "everyone", "limits": "5/hour"}
        for where in self.places:
            with self.limiting(where, narrow, wide) as site:
                assert site.told(x_key="ann") == '"api";r=0;t=3600, "all";r=4;t=720', where
                assert site.codes(times=9, x_key="ann") == [429] * 9, where
                assert [site.codes(x_key=each) for each in "bcdef"] == [[200]] * 4 + [[429]], where

    def test_a_rule_applies_where_it_matches(self) -> None:
        """A rule does not count requests that it does not match, and adds no fields to their responses."""
        for where in self.places:
            with self.limiting(where, {"match": {"method": "POST"}, "limits": "1/minute"}) as site:
                assert site.codes(times=3) == [200] * 3, where
                assert "ratelimit" not in site.ask().fields, where
                assert site.codes(times=2, method="POST") == [200, 429], where

    def test_a_method_of_its_own_has_a_budget_of_its_own(self) -> None:
        """A key with `method` counts each method separately, and HEAD as GET."""
        for where in self.places:
            with self.limiting(where, {"key": ["ip", "method"], "limits": "2/hour"}) as site:
                methods = ("HEAD", "GET", "HEAD", "GET", "POST")
                assert [site.ask(method=each).status for each in methods] == [200, 200, 429, 429, 200], where

    def test_head_is_counted_with_get(self) -> None:
        """A rule for GET also counts HEAD, at the cost of a GET, because frameworks run the handler of GET for HEAD."""
        for where in self.places:
            for rule in (
                {"match": {"method": "GET"}},
                {"match": {"any": [{"method": "GET"}]}},
                {"limits": "4/hour", "cost": {"GET": 2, "default": 0}},
            ):
                with self.limiting(where, rule) as site:
                    found = [site.ask(method=each).status for each in ("HEAD", "GET", "HEAD", "GET")]
                assert found == [200, 200, 429, 429], (where, rule)

    def test_a_rule_that_names_head_tells_it_from_get(self) -> None:
        """A rule for HEAD counts no GET, and HEAD may have a cost of its own."""
        for where in self.places:
            for rule, expected in (
                ({"match": {"method": "HEAD"}, "limits": "1/hour"}, [200, 200, 429, 200]),
                ({"limits": "4/hour", "cost": {"GET": 2, "HEAD": 4, "default": 0}}, [200, 429, 429, 429]),
            ):
                with self.limiting(where, rule) as site:
                    found = [site.ask(method=each).status for each in ("HEAD", "GET", "HEAD", "GET")]
                assert found == expected, (where, rule)

    def test_a_dry_run_lets_pass_and_says_so(self) -> None:
        """A rule with `act: observe` admits every request, and the log shows which requests it would refuse."""
        rule = {"limits": "1/minute", "act": "observe"}
        for where in self.places:
            with self.limiting(where, rule) as site, logged("headgate.policy") as log:
                assert site.codes(times=3) == [200] * 3, where
            assert any("rule api (observe) would refuse" in line for line in log), where

    def test_a_shadow_looks_like_any_other_answer(self) -> None:
        """A refused request gets the status, body and type of the rule, and no field that reveals a limit."""
        for where in self.places:
            with self.limiting(where, {"limits": "1/minute", "act": SHADOW}) as site:
                assert site.codes() == [200], where
                answer = site.ask()
            assert (answer.status, answer.body) == (202, "ok ü".encode()), where
            assert (answer.fields["content-type"], answer.fields["content-length"]) == ("text/x-ok", "5"), where
            assert {"ratelimit", "ratelimit-policy", "retry-after"}.isdisjoint(answer.fields), where

    def test_lists_come_before_every_limit(self) -> None:
        """A denied client gets 403 without the fields of a limit; an allowed client is never counted."""
        for where in self.places:
            for lists, expected in (
                ({"deny": {"header": {"x-bad": True}}}, [403, 403, 200, 429]),
                ({"allow": {"header": {"x-bad": True}}}, [200, 200, 200, 429]),
            ):
                policy: Any = lists if where == "policy" else {**lists, "rules": []}
                with self.limiting(where, {"limits": "1/minute"}, policy=policy) as site:
                    listed = [site.ask(x_bad="1") for _ in range(2)]
                    assert [*(each.status for each in listed), *site.codes(times=2)] == expected, (where, lists)
                assert {"ratelimit", "retry-after"}.isdisjoint(listed[0].fields), (where, lists)

    def test_what_is_not_there_is_counted_by_the_policy(self) -> None:
        """The policy counts a path without an endpoint: its 404 has the fields, and further requests are refused."""
        policy = {"rules": [{"name": "all", "key": "ip", "limits": "1/minute"}]}
        with self.site(Endpoint(path="/there"), policy=policy) as site:
            answer = site.ask("/nowhere")
            assert (answer.status, answer.fields["ratelimit"]) == (404, '"all";r=0;t=60')
            assert site.codes("/nowhere", "/there") == [429, 429]

    def test_scripts_may_read_the_fields_where_the_app_lets_them_in(self) -> None:
        """The fields are added to the app's `Access-Control-Expose-Headers`, only where it allows another origin."""

        def handle(asked: Asked) -> Reply:
            shared = {"Access-Control-Allow-Origin": "https://a.org", "access-control-expose-headers": "X-App"}
            return Reply(headers=shared if asked.method == "GET" else {})

        for where in self.places:
            with self.limiting(where, {"limits": "9/minute"}, handle=handle) as site:
                exposed = site.ask().fields["access-control-expose-headers"]
                assert exposed == "X-App, RateLimit-Policy, RateLimit, Retry-After", where
                assert "access-control-expose-headers" not in site.ask(method="POST").fields, where
