"""Tests of outcomes: counts and costs that depend on the response, permits until its end, and errors."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import as_completed
from itertools import islice

from headgate.testing.edges.app import Asked, Reply
from headgate.testing.edges.browser import SOON, Serving

ONE = {"name": "one", "limits": "1 in flight"}


def as_asked(asked: Asked) -> Reply:
    """Return the status and the cost of the query, or raise."""
    if asked.query["status"] == "raise":
        raise LookupError("the app's own")
    headers = {"x-cost": asked.query["cost"]} if "cost" in asked.query else {}
    return Reply(int(asked.query["status"]), headers, b"answered")


class Gate:
    """A handler whose slow requests report that they have started, and end after `open`."""

    def __init__(self, status: int = 200) -> None:
        self._inside, self._open = threading.Semaphore(0), threading.Event()
        self._status = status

    def __call__(self, asked: Asked) -> Reply:
        """Return at once, or after `open`, or return a stream that ends after `open`: the query decides."""
        if asked.query.get("stream"):
            return Reply(self._status, {"x-cost": "1"}, self._pieces())
        if asked.query.get("slow"):
            self._wait()
        return Reply(self._status, body=b"short")

    def _pieces(self) -> Iterator[bytes]:
        yield b"a"
        self._wait()
        yield b"b"

    def _wait(self) -> None:
        self._inside.release()
        assert self._open.wait(SOON), "the gate was not opened"

    def reached(self, times: int = 1) -> None:
        """Wait until `times` requests have started."""
        for _ in range(times):
            assert self._inside.acquire(timeout=SOON), "no request has reached the handler"

    def open(self) -> None:
        """Let all requests end, now and later."""
        self._open.set()


class Outcomes(Serving):
    """Counts, costs and permits that follow the response."""

    def test_only_responses_that_count_are_counted(self) -> None:
        """A charge is given back if the rule does not name the status; the fields show the numbers after that."""
        rule = {"limits": "2/hour", "count": {"when": {"status": [401]}}}
        for where in self.places:
            with self.limiting(where, rule, handle=as_asked) as site:
                statuses = ("200", "404", "200", "401", "200", "401")
                told = [site.told(f"/?status={each}") for each in statuses]
                assert told == ['"api";r=2;t=0'] * 3 + ['"api";r=1;t=1800'] * 2 + ['"api";r=0;t=3600'], where
                assert site.codes("/?status=200") == [429], where

    def test_an_exception_of_the_app_is_counted_as_500(self) -> None:
        """A rule for 5xx counts a handler that raises, and a rule for 401 does not."""
        for where in self.places:
            for status, expected in (("5xx", [500, 500, 429]), (401, [500, 500, 500])):
                rule = {"limits": "2/hour", "count": {"when": {"status": status}}}
                with self.limiting(where, rule, handle=as_asked) as site:
                    assert site.codes("/?status=raise", times=3) == expected, (where, status)

    def test_an_exception_of_the_app_is_charged_as_any_other_request(self) -> None:
        """A request whose handler raises stays charged."""
        for where in self.places:
            with self.limiting(where, handle=as_asked) as site:
                assert site.codes("/?status=raise", times=3) == [500, 500, 429], where

    def test_a_response_may_tell_its_cost(self) -> None:
        """A header of the response sets the cost of the request; without it, the first charge stays."""
        rule = {"limits": "10/hour", "cost": {"after": {"header": "X-Cost"}}}
        for where in self.places:
            with self.limiting(where, rule, handle=as_asked) as site:
                assert site.told("/?status=200&cost=4") == '"api";r=6;t=1440', where
                assert site.told("/?status=200&cost=0") == '"api";r=6;t=1440', where
                assert site.told("/?status=404&cost=2") == '"api";r=4;t=2160', where
                assert site.codes("/?status=raise") == [500], where
                assert site.told("/?status=200&cost=3") == '"api";r=0;t=3600', where
                assert site.codes("/?status=200&cost=1") == [429], where

    def test_ten_requests_at_once_at_a_limit_of_two(self) -> None:
        """Only two requests reach the handler; if their responses do not count, the limit is free again."""
        rule = {"limits": "2/hour", "count": {"when": {"status": [401]}}}
        for where in self.places:
            gate = Gate()
            with self.limiting(where, rule, handle=gate) as site, site.asking(10, "/?slow=1") as asked:
                refused = [each.result().status for each in islice(as_completed(asked, SOON), 8)]
                gate.reached(2)
                gate.open()
                assert refused == [429] * 8, where
                assert sorted(each.result().status for each in asked) == [200] * 2 + [429] * 8, where
                assert site.codes(times=3) == [200] * 3, where

    def test_ten_failures_at_once_are_two_attempts(self) -> None:
        """Two responses that count use the limit up: the next request is refused."""
        rule = {"limits": "2/hour", "count": {"when": {"status": [401]}}}
        for where in self.places:
            gate = Gate(401)
            with self.limiting(where, rule, handle=gate) as site, site.asking(10, "/?slow=1") as asked:
                gate.reached(2)
                gate.open()
                assert sorted(each.result().status for each in asked) == [401] * 2 + [429] * 8, where
                assert site.codes() == [429], where

    def test_a_permit_is_held_while_the_handler_runs(self) -> None:
        """A second request is refused until the first ends; its refusal has no `Retry-After`: the time is unknown."""
        for where in self.places:
            gate = Gate()
            with self.limiting(where, ONE, handle=gate) as site, site.asking(1, "/?slow=1") as [first]:
                gate.reached()
                refused = site.ask()
                gate.open()
                assert (refused.status, first.result(SOON).status, site.ask().status) == (429, 200, 200), where
            assert "retry-after" not in refused.fields, where
            assert refused.fields["ratelimit-policy"] == '"one";q=1;qu="concurrent-requests"', where
            assert refused.fields["ratelimit"] == '"one";r=0', where

    def test_a_permit_is_held_until_the_last_byte(self) -> None:
        """A stream holds its permit until its end, even if its handler has returned."""
        for where in self.places:
            gate = Gate()
            with self.limiting(where, ONE, handle=gate) as site, site.asking(1, "/?stream=1") as [first]:
                gate.reached()
                during = site.ask().status
                gate.open()
                assert (during, first.result(SOON).body, site.ask().body) == (429, b"ab", b"short"), where

    def test_a_handler_that_raises_holds_no_permit(self) -> None:
        """A request whose handler raises releases its permit."""
        for where in self.places:
            with self.limiting(where, ONE, handle=as_asked) as site:
                assert site.codes("/?status=raise", "/?status=200", times=2) == [500, 200, 500, 200], where

    def test_a_stream_passes_as_the_app_made_it(self) -> None:
        """Every chunk of a stream arrives unchanged, and its response has the fields."""
        made = [bytes([number]) * number for number in range(100)]

        def handle(asked: Asked) -> Reply:
            return Reply(body=iter(made))

        for where in self.places:
            for rule in ({}, {"count": {"when": {"status": [401]}}}):
                with self.limiting(where, rule, handle=handle) as site:
                    answer = site.ask()
                assert (answer.status, answer.body) == (200, b"".join(made)), (where, rule)
                assert answer.fields["ratelimit"].startswith('"api";r='), (where, rule)

    def test_a_stream_is_counted_when_it_begins(self) -> None:
        """A refund by status or header happens when the stream begins, before the client reads its end."""
        for where in self.places:
            for rule in (
                {"limits": "1/hour", "count": {"when": {"status": [401]}}},
                {"limits": "10/hour", "cost": {"default": 9, "after": {"header": "x-cost"}}},
            ):
                gate = Gate()
                with self.limiting(where, rule, handle=gate) as site, site.asking(1, "/?stream=1") as [first]:
                    gate.reached()
                    during = site.ask().status
                    gate.open()
                    assert (during, first.result(SOON).body) == (200, b"ab"), (where, rule)

    def test_a_delay_holds_requests_until_their_place_in_the_queue(self) -> None:
        """Of four requests at once at 20/second and `hold: 3`, three pass after their delays and one is refused."""
        for where in self.places:
            rule = {"limits": "20/second", "act": {"delay": {"hold": 3}}}
            with self.limiting(where, rule) as site:
                start = time.monotonic()
                with site.asking(4) as asked:
                    assert sorted(each.result(SOON).status for each in asked) == [200] * 3 + [429], where
                assert time.monotonic() - start >= 0.1, where
