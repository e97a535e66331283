"""Tests of the decision that a handler sees, and of the real costs that it tells."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from headgate.errors import InvalidCall
from headgate.testing.edges.app import Asked, Handle, Reply
from headgate.testing.edges.browser import Serving

COSTLY = {"limits": "100/hour", "cost": 10}


def settling(said: list[Any], real: int | None, **other: int) -> Handle:
    """Return a handler that tells its real cost, and notes an error of it; None to tell nothing."""

    def handle(asked: Asked) -> Reply:
        try:
            asked.rate_limit.settle(**({} if real is None else {"api": real}), **other)
        except InvalidCall as wrong:
            said.append(str(wrong))
        return Reply()

    return handle


class Decisions(Serving):
    """The decision as handlers see it."""

    def test_a_handler_sees_the_decision_about_its_request(self) -> None:
        """The numbers are those of the header fields, and `as_dict` has them as plain values."""
        for where in self.places:
            seen: list[Any] = []

            def handle(asked: Asked, seen: list[Any] = seen) -> Reply:
                rate_limit = asked.rate_limit
                numbers = (bool(rate_limit), rate_limit.limit, rate_limit.remaining, rate_limit.reset_after)
                seen.append((*numbers, rate_limit.retry_after, rate_limit.marks, rate_limit.degraded))
                assert json.loads(json.dumps(rate_limit.as_dict()))["remaining"] == rate_limit.remaining
                return Reply()

            with self.limiting(where, handle=handle) as site:
                assert site.codes(times=3) == [200, 200, 429], where
            assert seen == [(True, 2, 1, 30.0, 0.0, (), False), (True, 2, 0, 60.0, 0.0, (), False)], where

    def test_a_handler_without_limits_sees_a_decision_without_numbers(self) -> None:
        """A request that no rule applies to is allowed, and the numbers are None."""
        for where in self.places:
            seen: list[Any] = []

            def handle(asked: Asked, seen: list[Any] = seen) -> Reply:
                seen.append((asked.rate_limit.allowed, asked.rate_limit.remaining, asked.rate_limit.as_dict()["limit"]))
                asked.rate_limit.settle(api=5)
                return Reply()

            with self.limiting(where, {"match": {"method": "POST"}}, handle=handle) as site:
                assert site.codes() == [200], where
            assert seen == [(True, None, None)], where

    def test_a_marked_request_passes_and_its_handler_knows(self) -> None:
        """Over the limit of a rule with `act: mark`, the decision is False, names the rule, and tells the wait."""
        other = {"name": "all", "key": "everyone", "limits": "10/hour"}
        for where in self.places:
            seen: list[Any] = []

            def handle(asked: Asked, seen: list[Any] = seen) -> Reply:
                rate_limit = asked.rate_limit
                seen.append((bool(rate_limit), rate_limit.marks, rate_limit.retry_after))
                assert rate_limit.as_dict()["marks"] == list(rate_limit.marks)
                return Reply()

            with self.limiting(where, {"limits": "1/minute", "act": "mark"}, other, handle=handle) as site:
                answers = [site.ask() for _ in range(2)]
                assert [each.fields["ratelimit"] for each in answers] == ['"all";r=9;t=360', '"all";r=8;t=720'], where
                site.clock.advance(60)
                assert site.codes() == [200], where
            assert seen == [(True, (), 0.0), (False, ("api",), 60.0), (True, (), 0.0)], where

    def test_a_handler_tells_the_real_cost(self) -> None:
        """Unused units are given back and missing ones charged, once; a cost that is not told stays."""
        for where in self.places:
            for real, left in ((4, "96"), (25, "75"), (10, "90"), (0, "100"), (None, "90")):
                said: list[Any] = []
                with self.limiting(where, COSTLY, handle=settling(said, real)) as site:
                    assert site.codes() == [200], (where, real)
                    assert self.left(site) == left, (where, real)
                assert said == [], (where, real)

    def test_a_rule_that_lets_every_request_pass_takes_the_real_cost(self) -> None:
        """A rule that marks or observes counts what its handler tells; the handler sees the numbers of a mark only."""
        for where in self.places:
            for act, shown in (("mark", [90, 86]), ("observe", [None, None])):
                seen: list[Any] = []

                def handle(asked: Asked, seen: list[Any] = seen) -> Reply:
                    seen.append(asked.rate_limit.remaining)
                    asked.rate_limit.settle(api=4)
                    return Reply()

                with self.limiting(where, {**COSTLY, "act": act}, handle=handle) as site:
                    answers = [site.ask() for _ in range(2)]
                    assert [each.status for each in answers] == [200, 200], (where, act)
                    assert not any("ratelimit" in each.fields for each in answers), (where, act)
                    assert self.left(site) == "92", (where, act)
                assert seen == shown, (where, act)

    def test_a_handler_may_settle_where_limits_are_disabled(self) -> None:
        """With `enabled=False` a handler sees a decision without numbers, and what it settles is nothing."""
        for where in self.places:
            said: list[Any] = []
            with self.limiting(where, COSTLY, handle=settling(said, 4), enabled=False) as site:
                assert site.codes() == [200], where
            assert said == [], where

    def test_a_cost_under_an_unknown_name_is_an_error(self) -> None:
        """A name that no rule and no limit has raises `InvalidCall`, and nothing is settled."""
        for where in self.places:
            said: list[Any] = []
            with self.limiting(where, COSTLY, handle=settling(said, 4, apj=4)) as site:
                assert site.codes() == [200], where
                assert self.left(site) == "90", where
            assert said == ["settle: no rule and no limit has the name 'apj'; did you mean api?"], where

    def test_a_stream_tells_the_real_cost_at_its_end(self) -> None:
        """The body settles after its last piece, when the header fields have been sent."""
        for where in self.places:

            def handle(asked: Asked) -> Reply:
                def pieces() -> Iterator[bytes]:
                    yield b"a"
                    yield b"b"
                    asked.rate_limit.settle(api=35)
                    asked.rate_limit.settle(api=1)

                return Reply(body=pieces())

            with self.limiting(where, COSTLY, handle=handle) as site:
                answer = site.ask()
                assert (answer.body, answer.fields["ratelimit"]) == (b"ab", '"api";r=90;t=360'), where
                assert self.left(site) == "65", where

    def left(self, site: Any) -> str:  # noqa: ANN401
        """Return the units of the client that are left."""
        return str(site.limits.peek("api", self.client).remaining)
