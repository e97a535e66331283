"""Tests of the look of refusals: statuses, messages, pages and header names of the app's own."""

from __future__ import annotations

import json

from headgate.testing.edges.browser import Serving
from headgate.web.refusal import Refusal

BROWSER = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"
NAMES = {"limit": "X-Calls", "remaining": "X-Calls-Left"}


class Refusals(Serving):
    """Refusals as an app wants them."""

    def test_a_rule_has_a_status_and_a_message_of_its_own(self) -> None:
        """The message is in every kind of body, beside the wait; a rule may have one for each limit."""
        slow, more = "Slow down, please.", "Ask for more."
        for where in self.places:
            for status, messages, message in ((420, more, more), (503, {"minute": slow, "hour": more}, slow)):
                act = {"deny": {"status": status, "message": messages}}
                with self.limiting(where, {"limits": "1/minute as minute; 9/hour as hour", "act": act}) as site:
                    assert site.codes() == [200], where
                    problem, plain = site.ask(), site.ask(accept="application/json")
                assert (problem.status, json.loads(problem.body)["status"]) == (status, status), where
                wait = int(problem.fields["retry-after"])
                assert json.loads(problem.body)["detail"] == f"{message} Retry after {wait} s.", where
                told = {"error": "quota-exceeded", "detail": message, "retry_after": wait}
                assert json.loads(plain.body) == told, where

    def test_browsers_get_a_page_and_programs_json(self) -> None:
        """The page goes to clients that prefer HTML; its function sees the request."""
        pages = Refusal(html=lambda reason, decision, seconds, request: f"<p>{seconds} {request is not None}</p>")
        for where in self.places:
            with self.limiting(where, {"limits": "1/minute"}, refusal=pages) as site:
                assert site.codes() == [200], where
                page, problem = site.ask(accept=BROWSER), site.ask(accept="*/*")
            assert (page.status, page.body) == (429, b"<p>60 True</p>"), where
            assert page.fields["content-type"] == "text/html; charset=utf-8", where
            assert problem.fields["content-type"] == "application/problem+json", where

    def test_the_policy_chooses_the_names_of_the_fields(self) -> None:
        """Fields without a name are not sent."""
        for where in self.places:
            rules = {} if where == "policy" else {"rules": [{"match": {"path": "/x"}, "key": "ip", "limits": "1/day"}]}
            with self.limiting(where, policy={"headers": NAMES, **rules}) as site:
                fields = site.ask().fields
            assert (fields["x-calls"], fields["x-calls-left"]) == ("2", "1"), where
            assert {"ratelimit", "", "x-ratelimit-limit"}.isdisjoint(fields), where
