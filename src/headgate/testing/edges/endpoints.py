"""Tests of limits at endpoints: their counts, default limits, and one decision together with the policy."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any
from unittest.mock import patch

from headgate.errors import BudgetExhausted, InvalidCall, InvalidPolicy, RateLimited
from headgate.limiter import Limiter
from headgate.stores import MemoryStore
from headgate.testing.clock import ManualClock
from headgate.testing.edges.app import Asked, Endpoint, Handle, Reply
from headgate.testing.edges.browser import LATER, Serving
from headgate.testing.edges.operation import policy_of
from headgate.testing.edges.outcomes import Gate, as_asked
from headgate.web.refusal import Refusal

ALL: dict[str, Any] = {"rules": [{"name": "all", "key": "ip", "limits": "5/hour"}]}
UNAVAILABLE = {
    "type": "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity",
    "title": "The server has less capacity than usual",
    "status": 503,
    "detail": "Retry after 13 s.",
}
FEW_TABLES, MANY = 16, 20
"""The most tables of a store, and more endpoints than that."""


def once(path: str = "/", **rule: Any) -> Endpoint:  # noqa: ANN401
    """Return an endpoint that admits one request an hour."""
    return Endpoint(path=path, limits=({"limits": "1/hour", **rule},))


def asking(limiter: Limiter) -> Handle:
    """Return a handler that uses a limiter of the app."""

    def handle(asked: Asked) -> Reply:
        decision = limiter.hit("all")
        if not decision:
            raise RateLimited(decision)
        return Reply()

    return handle


class Endpoints(Serving):
    """Limits that are written at endpoints."""

    def test_the_template_is_counted_never_the_url(self) -> None:
        """All values of a path parameter share one count: a client gets no new budget from another path."""
        for own in (({"limits": "2/hour"},), ()):
            with self.site(Endpoint(path="/items/{id}", limits=own), default="2/hour") as site:
                assert site.codes("/items/1", "/items/2", "/items/3?page=2") == [200, 200, 429], own

    def test_each_endpoint_has_counts_of_its_own(self) -> None:
        """The same limit at two paths has two counts."""
        with self.site(once("/a"), once("/b")) as site:
            assert site.codes("/a", "/b", "/a", "/b") == [200, 200, 429, 429]

    def test_limits_of_one_name_share_a_count(self) -> None:
        """Limits with the same name at several endpoints are one budget."""
        with self.site(once("/a", name="shared"), once("/b", name="shared")) as site:
            assert site.codes("/a", "/b") == [200, 429]

    def test_stacked_limits_without_names_are_two_counts_and_one_decision(self) -> None:
        """Each limit has its own name in the fields, and a refusal by the narrow limit does not charge the wide one."""
        stacked = ({"limits": "1/hour", "key": {"header": "x-key"}}, {"limits": "3/hour", "key": "everyone"})
        with self.site(Endpoint(limits=stacked)) as site:
            narrow, wide = site.told(x_key="ann").split(", ")
            assert narrow.endswith(";r=0;t=3600") and wide.endswith(";r=2;t=1200")
            assert narrow.split(";")[0] != wide.split(";")[0]
            assert site.codes(times=5, x_key="ann") == [429] * 5
            assert [site.codes(x_key=each) for each in "bcd"] == [[200], [200], [429]]

    def test_default_limits_are_for_endpoints_without_their_own(self) -> None:
        """Each such endpoint has its own count; exempt endpoints and unknown paths are not counted."""
        own = Endpoint(path="/own", limits=({"limits": "3/hour"},))
        free = Endpoint(path="/free", exempt=True)
        with self.site(Endpoint(path="/a"), Endpoint(path="/b"), own, free, default="1/hour") as site:
            assert site.codes("/a", "/b", times=2) == [200, 200, 429, 429]
            assert site.codes("/own", times=4) == [200, 200, 200, 429]
            assert site.codes("/free", times=4) == [200] * 4
            assert site.codes("/nowhere", times=3) == [404] * 3

    def test_default_limits_do_not_count_methods_that_an_endpoint_does_not_answer(self) -> None:
        """A request that gets 405 is not counted."""
        with self.site(Endpoint(methods=("GET",)), default="1/hour") as site:
            assert site.codes(times=3, method="PUT") == [405] * 3
            assert site.codes(times=2) == [200, 429]

    def test_default_limits_may_have_another_key(self) -> None:
        """Default limits accept every key of a policy."""
        with self.site(Endpoint(), default="1/hour", key={"header": "x-key"}) as site:
            assert [site.codes(x_key=each) for each in "aab"] == [[200], [429], [200]]

    def test_default_limits_may_be_in_flight(self) -> None:
        """Each endpoint has its own permits; a request holds its permit until the last byte."""
        gate = Gate()
        endpoints = Endpoint(path="/slow", handle=gate), Endpoint(path="/other")
        with self.site(*endpoints, default="1 in flight") as site, site.asking(1, "/slow?stream=1") as [first]:
            gate.reached()
            assert site.codes("/slow", "/other") == [429, 200]
            gate.open()
            assert (first.result().body, *site.codes("/slow")) == (b"ab", 200)

    def test_an_exempt_endpoint_keeps_its_own_limits(self) -> None:
        """`exempt` switches off the default limits, not the endpoint's own."""
        with self.site(Endpoint(limits=({"limits": "2/hour"},), exempt=True), default="1/hour") as site:
            assert site.codes(times=3) == [200, 200, 429]

    def test_a_refusal_at_an_endpoint_costs_nothing_in_the_policy(self) -> None:
        """An admitted response lists both limits; the policy is charged for that request only."""
        with self.site(once("/x", name="x", key={"header": "x-key"}), Endpoint(path="/y"), policy=ALL) as site:
            assert site.ask("/x", x_key="ann").fields["ratelimit"] == '"all";r=4;t=720, "x";r=0;t=3600'
            answer = site.ask("/x", x_key="ann")
            assert (answer.status, answer.fields["ratelimit"]) == (429, '"x";r=0;t=3600')
            assert site.codes("/x", times=9, x_key="ann") == [429] * 9
            assert site.told("/y") == '"all";r=3;t=1440'

    def test_a_refusal_by_the_policy_costs_nothing_at_the_endpoint(self) -> None:
        """The endpoint's limit is not charged for requests that the policy refuses."""
        policy = {"rules": [{"name": "all", "key": "ip", "limits": "1/minute"}]}
        with self.site(Endpoint(limits=({"limits": "2/hour", "name": "x"},)), policy=policy) as site:
            assert site.codes(times=9) == [200] + [429] * 8
            site.clock.advance(60)
            assert site.told() == '"all";r=0;t=60, "x";r=0;t=3540'

    def test_a_refusal_by_the_default_limits_costs_nothing_in_the_policy(self) -> None:
        """Default limits and the policy are one decision: a refusal by the first charges the second nothing."""
        with self.site(Endpoint(path="/x"), Endpoint(path="/y"), policy=ALL, default="1/hour") as site:
            assert site.codes("/x", times=9) == [200] + [429] * 8
            assert site.told("/y").startswith('"all";r=3;t=1440, ')

    def test_every_response_tells_what_is_left(self) -> None:
        """The framework's error responses have the fields of the policy, and of the endpoint if it was reached."""
        limited = Endpoint(path="/x", limits=({"limits": "9/hour", "name": "x"},), handle=as_asked)
        policy = {"rules": [{"name": "all", "key": "ip", "limits": "99/hour"}]}
        with self.site(limited, policy=policy) as site:
            for method, path, status, names in (
                ("GET", "/x?status=404", 404, ['"all"', '"x"']),
                ("HEAD", "/x?status=200", 200, ['"all"', '"x"']),
                ("GET", "/nowhere", 404, ['"all"']),
            ):
                answer = site.ask(path, method=method)
                told = [each.split(";")[0] for each in answer.fields["ratelimit"].split(", ")]
                assert (answer.status, told) == (status, names), (method, path)
            answer = site.ask("/x", method="PUT")
            assert answer.status == 405 and answer.fields["ratelimit"].startswith('"all";r=95'), answer

    def test_an_exception_that_nobody_handles_tells_what_is_left(self) -> None:
        """The framework's 500 response has the fields of the policy and of the endpoint."""
        limited = Endpoint(limits=({"limits": "9/hour", "name": "x"},), handle=as_asked)
        with self.site(limited, policy=ALL) as site:
            answer = site.ask("/?status=raise")
        assert (answer.status, answer.fields["ratelimit"]) == (500, '"all";r=4;t=720, "x";r=8;t=400')

    def test_the_apps_functions_read_the_request(self) -> None:
        """Limits, keys, costs and exemptions may be functions of the request."""
        rule = {
            "limits": lambda asked: "4/hour" if asked.query.get("plan") == "pro" else "2/hour",
            "key": [lambda asked: asked.headers.get("x-user"), "ip"],
            "cost": lambda asked: int(asked.query.get("cost", 1)),
            "exempt": lambda asked: "admin" in asked.query,
        }
        with self.site(Endpoint(limits=(rule,))) as site:
            assert site.codes(times=3, x_user="ann") == [200, 200, 429]
            assert site.codes("/?cost=2", "/", "/?admin=1", x_user="bob") == [200, 429, 200]
            assert site.codes("/?plan=pro", times=5, x_user="cho") == [200] * 4 + [429]

    def test_a_limit_may_look_at_the_path(self) -> None:
        """A `match` at an endpoint limits some of its paths only."""
        with self.site(Endpoint(path="/{name}", limits=({"limits": "1/hour", "match": {"path": "/big"}},))) as site:
            assert site.codes("/small", "/small", "/big", "/big", "/small") == [200, 200, 200, 429, 200]

    def test_endpoints_go_on_counting_under_a_new_policy(self) -> None:
        """After a reload of the policy file, counts at endpoints stay, and their fields have the new style."""
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "policy.json"
            file.write_text(policy_of("9/hour"))
            with self.site(Endpoint(limits=({"limits": "3/hour"},)), policy=file) as site:
                assert site.codes() == [200]
                file.write_text(policy_of("9/hour", ', "headers": "x-ratelimit"'))
                assert site.limits.reload() is True
                fields = site.ask().fields
                assert fields["x-ratelimit-remaining"] == "1" and "ratelimit" not in fields
                assert site.codes(times=2) == [200, 429]

    def test_mistakes_are_told_where_the_limit_is_written(self) -> None:
        """A limit that cannot be read raises `InvalidPolicy` while the app is built."""
        for wrong in ({"limits": "many"}, {"limits": "1/hour", "key": "usr"}, {"limits": "1/hour", "cuont": {}}):
            try:
                with self.site(Endpoint(limits=(wrong,))):
                    pass
            except InvalidPolicy:
                continue
            raise AssertionError(f"{wrong} must not be a limit")

    def test_a_limit_above_the_route_limits_or_the_app_does_not_start(self) -> None:
        """No order of decorators silently leaves an endpoint without its limit."""
        try:
            with self.site(Endpoint(limits=({"limits": "1/hour"},), above=True)) as site:
                assert site.codes(times=2) == [200, 429]
        except InvalidCall:
            pass

    def test_more_endpoints_than_a_store_has_tables(self) -> None:
        """Limits with the same algorithm and period share a table, for any numbers and any endpoint."""
        paths = [f"/e{number}" for number in range(1, MANY + 1)]
        rules = [{"limits": f"{number}/hour", "on_error": "deny"} for number in range(1, MANY + 1)]
        endpoints = [Endpoint(path=path, limits=(rule,)) for path, rule in zip(paths, rules, strict=True)]
        with patch("headgate.stores.tables.MOST_TABLES", FEW_TABLES), self.site(*endpoints) as site:
            assert site.codes(*paths) == [200] * MANY
            assert site.codes("/e1", "/e2", "/e2") == [429, 200, 429]

    def test_a_limiter_of_the_apps_own_refuses_as_the_edge_does(self) -> None:
        """`RateLimited` raised in a handler is a refusal, not a 500; the fields show its own limit only."""
        for policy in (None, ALL):
            limiter = Limiter("1/hour as views", store=MemoryStore(clock=ManualClock(LATER)))
            with self.site(Endpoint(handle=asking(limiter)), policy=policy) as site:
                assert site.codes() == [200], policy
                answer = site.ask()
                left = site.told("/nowhere")
            assert (answer.status, json.loads(answer.body)["violated-policies"]) == (429, ["views"]), policy
            assert answer.fields["ratelimit-policy"] == '"views";q=1;w=3600', policy
            assert (answer.fields["ratelimit"], answer.fields["retry-after"]) == ('"views";r=0;t=3600', "3600"), policy
            assert answer.fields["content-type"] == "application/problem+json", policy
            assert left == ('"all";r=2;t=2160' if policy else ""), "what the policy charged for both stays charged"

    def test_a_budget_of_the_apps_own_that_is_used_up_makes_the_edge_unavailable(self) -> None:
        """`BudgetExhausted` in a handler is a 503 with whole seconds: no client did anything wrong."""

        def handle(asked: Asked) -> Reply:
            raise BudgetExhausted("api.example", "the budget is used up", 12.2)

        for policy in (None, ALL):
            with self.site(Endpoint(handle=handle), policy=policy) as site:
                answer, short = site.ask(), site.ask(accept="application/json")
                left = site.told("/nowhere")
            assert (answer.status, json.loads(answer.body)) == (503, UNAVAILABLE), policy
            assert (answer.fields["retry-after"], answer.fields["content-type"]) == ("13", "application/problem+json")
            assert {"ratelimit", "ratelimit-policy"}.isdisjoint(answer.fields), policy
            assert json.loads(short.body) == {"error": "temporary-reduced-capacity", "retry_after": 13}, policy
            assert left == ('"all";r=2;t=2160' if policy else ""), "what the policy charged for both stays charged"

    def test_the_body_of_such_a_refusal_is_made_with_the_request(self) -> None:
        """The function that makes the bodies of refusals sees the request, whichever limiter refuses it."""
        limiter = Limiter("1/hour as views", store=MemoryStore(clock=ManualClock(LATER)))
        body = Refusal(lambda reason, decision, seconds, request: f"{reason.status} {request is not None}")
        with self.site(Endpoint(handle=asking(limiter)), refusal=body) as site:
            assert site.codes() == [200]
            assert site.ask().body == b"429 True"

    def test_counts_by_the_response_see_a_limiter_of_the_apps_own(self) -> None:
        """A rule that counts 429 responses also counts refusals by the app's own limiter."""
        limiter = Limiter("1/hour as views", store=MemoryStore(clock=ManualClock(LATER)))
        limiter.hit("all")
        rule = {"name": "tries", "key": "ip", "limits": "1/minute", "count": {"when": {"status": 429}}}
        with self.site(Endpoint(handle=asking(limiter)), policy={"rules": [rule]}) as site:
            told = [site.ask().fields["ratelimit-policy"] for _ in range(2)]
        assert told == ['"views";q=1;w=3600', '"tries";q=1;w=60']
