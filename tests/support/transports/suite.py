"""`TransportSuite`: the behaviour of every transport. The test of a transport is a subclass that opens a client."""

from __future__ import annotations

import gzip
import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from typing import Any, ClassVar

import pytest

from headgate import InvalidCall, MemoryStore
from headgate.client import Budget, Event, Outgoing, Retries, chat, deadline
from headgate.errors import BudgetExhausted
from headgate.shed import LoadShedder
from headgate.testing import ManualClock
from headgate.testing.edges.browser import logged
from tests.support.servers import wait_until
from tests.support.transports.clients import AwaitedClient, Client
from tests.support.transports.service import Reply, Service, http_service, silent_port

START = 1_000_000.0
GAP = 60 / (60 * 0.98)
"""The seconds between two requests of 60 a minute, with the headroom of 2 %."""


class TransportSuite:
    """What every transport does with every budget."""

    connections = 1
    """The most connections of a client: with one, a response that is not closed before a retry holds the retry up."""
    error: ClassVar[Any]
    """The error of the library for a connection that fails."""
    makes_up = False
    """Whether a refusal can be a response."""

    def serve(self, clock: ManualClock) -> AbstractContextManager[Service]:
        """Return a service that this transport can ask."""
        return http_service(clock)

    def client(self, budget: Budget, address: str, clock: ManualClock, moves: bool) -> AbstractContextManager[Any]:
        """Return a client of this transport with one connection, as a context manager."""
        raise NotImplementedError

    @contextmanager
    def asking(
        self, *replies: Reply, limits: str = "", moves: bool = True, well: int = 0, **options: Any
    ) -> Iterator[tuple[Client, Service, Budget]]:
        """A service with these replies, a budget, and a client; before, so many requests have gone well.

        After as many failures as requests that went well, a budget begins to refuse by chance.
        """
        clock = ManualClock(START)
        budget = Budget(limits or (), store=MemoryStore(clock=clock), **options)
        with self.serve(clock) as service, self.client(budget, service.address, clock, moves) as client:
            for _ in range(well):
                client.ask()
            service.seen.clear()
            service.replies.extend(replies)
            yield client, service, budget

    def test_requests_are_sent_in_their_turn(self) -> None:
        """Requests of 60 a minute leave no sooner than 1.02 s after each other, and none is refused."""
        with self.asking(limits="60/minute") as (client, service, budget):
            answers = [client.ask() for _ in range(4)]
        assert [(each.status, each.body) for each in answers] == [(200, b"hello")] * 4
        times = [each.at - START for each in service.seen]
        assert all(at > GAP * number - 0.001 for number, at in enumerate(times)), times
        assert (budget.report().sent, budget.report().refused_there) == (4, 0)

    def test_a_refusal_with_a_time_is_obeyed(self) -> None:
        """A 429 pauses the key for the told time; then the request is sent again, any method, the same body."""
        with self.asking(Reply(429, wait=30)) as (client, service, budget):
            answer = client.ask("POST", body=b"once")
        first, second = service.seen
        assert (answer.status, answer.body) == (200, b"hello")
        assert second.at - first.at >= 30
        assert (first.body, second.body) == (b"once", b"once")
        report = budget.report()
        assert (report.sent, report.retried, report.refused_there, report.paused) == (2, 1, 1, 1)

    def test_a_busy_server_with_a_time_is_obeyed(self) -> None:
        """A 503 with a time was not processed: any method is sent again, up to half of the time later."""
        events: list[Event] = []
        with self.asking(Reply(503, wait=10), well=4, on_event=events.append) as (client, service, _):
            assert client.ask("POST", body=b"x").status == 200
        first, second = service.seen
        assert second.at - first.at >= 10
        assert [each.kind for each in events] == ["retry"] and 10 <= events[0].seconds <= 15

    def test_a_retry_has_closed_the_response_before_it(self) -> None:
        """A client with one connection can send again, although the refusal has a body that was not read."""
        large = Reply(429, wait=1, body=b"x" * 200_000)
        with self.asking(large, large) as (client, service, _):
            assert client.ask().status == 200
        assert len(service.seen) == 3

    def test_a_body_that_can_be_read_once_is_sent_once(self) -> None:
        """The refusal of a request with an iterator is for the caller; the iterator was sent as a whole."""
        with self.asking(Reply(429, wait=1)) as (client, service, _):
            assert client.ask("POST", body=[b"a", b"b"]).status == 429
            assert client.ask().status == 200
        assert [each.body for each in service.seen] == [b"ab", b""]

    def test_a_request_that_may_have_been_processed_is_sent_once(self) -> None:
        """A 503 without a time may come after the work: only an `Idempotency-Key` makes another attempt harmless."""
        for headers, statuses in (({}, [503, 200]), ({"Idempotency-Key": "k1"}, [200, 200])):
            with self.asking(Reply(503), well=4) as (client, service, _):
                answers = [client.ask("POST", headers=headers, body=b"pay") for _ in range(2)]
            assert [each.status for each in answers] == statuses, headers
            assert len(service.seen) == (3 if headers else 2), headers

    def test_a_final_answer_is_the_callers(self) -> None:
        """A 404 is no failure of the server: the request is sent once, and the body is unchanged."""
        with self.asking(Reply(404, wait=1)) as (client, service, budget):
            assert client.ask().status == 404
        assert (len(service.seen), budget.report().retried) == (1, 0)

    def test_no_more_attempts_than_the_caller_allows(self) -> None:
        """The last refusal is the answer; a wait that is too long is not begun."""
        for retries, wait, sent in ((Retries(attempts=2), 1.0, 2), (Retries(longest_wait=5), 6.0, 1)):
            with self.asking(*[Reply(429, wait=wait)] * 4, retries=retries) as (client, service, _):
                assert client.ask().status == 429
            assert len(service.seen) == sent, retries

    def test_an_sdk_that_retries_is_not_retried_again(self) -> None:
        """`x-stainless-retry-count` above 0 means that the SDK sends again by itself; the log tells the fix."""
        for count, attempts in (("0", 2), ("1", 1)):
            with self.asking(Reply(429, wait=1)) as (client, service, _), logged("headgate.client"):
                client.ask(headers={"x-stainless-retry-count": count})
            assert len(service.seen) == attempts, count

    def test_a_refused_connection_is_tried_again(self) -> None:
        """Nothing was sent, so any method is tried, four times in all; then the error of the library is raised."""
        with self.asking(key=lambda _: "one", well=4) as (_, service, budget):
            port = service.address.rpartition(":")[2]
            nowhere = service.address.replace(port, str(silent_port()))
            with self.client(budget, nowhere, service.clock, True) as client, pytest.raises(self.error):
                client.ask("POST", body=b"x")
        assert (budget.report().sent, budget.report().retried) == (4 + 4, 3)

    def test_a_request_without_time_is_refused_here(self) -> None:
        """A request that cannot be sent before its deadline is not sent, and is told when to come back."""
        for refusal in ("raise", "response"):
            with self.asking(limits="1/hour", refusal=refusal, moves=False) as (client, service, budget):
                assert client.ask().status == 200
                with deadline(5):
                    if refusal == "raise" or not self.makes_up:
                        with pytest.raises(BudgetExhausted) as refused:
                            client.ask()
                        assert 3600 < refused.value.retry_after < 3700
                    else:
                        answer = client.ask()
                        assert (answer.status, answer.headers["headgate-refused"]) == (429, "local")
                        assert answer.headers["x-should-retry"] == "false"
                        assert 3600 < int(answer.headers["retry-after"]) < 3700
                        assert json.loads(answer.body)["error"]["type"] == "headgate_refused"
            assert (len(service.seen), budget.report().refused_here) == (1, 1), refusal

    def test_a_crowd_begins_with_one_request(self) -> None:
        """Until the server has answered once, one request is under way; then all callers get their answer."""
        self.connections = 8  # the pool of httpx itself loses a connection now and then that threads contend for
        with self.asking() as (client, service, budget), ThreadPoolExecutor(8) as pool:
            service.hold()
            asked = [pool.submit(client.ask) for _ in range(16)]
            wait_until(lambda: service.seen, "the first request is there")
            threading.Event().wait(0.1)  # a second one would come now
            before = len(service.seen)
            service.release()
            answers = [each.result(30).status for each in asked]
        assert answers == [200] * 16
        assert before == 1
        assert len(service.seen) == budget.report().sent == 16

    def test_class_and_time_of_the_request_being_served_are_passed_on(self) -> None:
        """A call inside a load shedder's permit has its class; a field that the caller has set stays."""
        with self.asking() as (client, service, _), LoadShedder(5).permit("sheddable"), deadline(60):
            client.ask()
            client.ask(headers={"x-request-class": "mine", "x-timeout-ms": "7"})
        assert [each.headers.get("x-request-class") for each in service.seen] == ["sheddable", "mine"]
        left, own = (int(each.headers["x-timeout-ms"]) for each in service.seen)
        assert 0 < left < 60_000 and own == 7

    def test_each_attempt_tells_the_time_that_is_left(self) -> None:
        """A retry has less time than the attempt before it, and the server must not work for longer."""
        late = Reply(429, wait=1, takes=0.03)
        with self.asking(late) as (client, service, _), LoadShedder(5).permit("sheddable"), deadline(60):
            client.ask()
        first, second = (int(each.headers["x-timeout-ms"]) for each in service.seen)
        assert second <= first - 30

    def test_only_a_budget_is_taken(self) -> None:
        """Another value is a mistake that is told where the transport is made."""
        wrong: Any = "5000/hour"
        with (
            pytest.raises(InvalidCall, match="takes a Budget; got a value of type str"),
            self.client(wrong, "http://127.0.0.1:1", ManualClock(), False),
        ):
            pass


class HttpSuite(TransportSuite):
    """What every transport of HTTP does."""

    def test_a_lost_connection_is_made_again_for_harmless_requests(self) -> None:
        """A server that cuts the connection may have done the work: GET is sent again, POST only with its key."""
        for method, headers, attempts in (("GET", {}, 2), ("POST", {"Idempotency-Key": "k1"}, 2), ("POST", {}, 1)):
            with self.asking(Reply(cut=True), well=4) as (client, service, _):
                if attempts == 1:
                    with pytest.raises(self.error):
                        client.ask(method, headers=headers, body=b"x")
                else:
                    assert client.ask(method, headers=headers).status == 200
            assert len(service.seen) == attempts, (method, headers)

    def test_functions_of_keys_see_the_same_request(self) -> None:
        """Method, host, path, headers and body of a request are the same in every transport."""
        requests: list[Outgoing] = []

        def key(request: Outgoing) -> str:
            requests.append(request)
            return "one"

        with self.asking(key=key) as (client, service, _):
            client.ask("POST", "/a%20b?c=d", {"X-Kind": "test"}, b"body")
            client.ask("POST", body=[b"body"])
        first, second = requests
        assert (first.method, first.host, first.path) == ("POST", service.address[len("http://") :], "/a b")
        assert (first.headers["x-kind"], first.repeatable) == ("test", True)
        assert (second.body, second.repeatable) == (None, False)

    def test_the_body_of_a_refusal_stays_readable(self) -> None:
        """GitHub tells of its secondary limits in the body, which the budget reads and the caller reads too."""
        words = b'{"message": "You have exceeded a secondary rate limit."}'
        for status in (403, 429):
            reply = Reply(status, headers={"X-GitHub-Request-Id": "1"}, body=words)
            with self.asking(reply, reply, retries=Retries(attempts=2)) as (client, service, budget):
                answer = client.ask()
            assert (answer.status, answer.body, budget.report().refused_there) == (status, words, 2)
            assert service.seen[1].at - service.seen[0].at >= 60

    def test_tokens_are_settled_by_the_answer(self) -> None:
        """The answer tells the usage, compressed or not; its bytes reach the caller unchanged."""
        told = json.dumps({"usage": {"prompt_tokens": 7, "completion_tokens": 11, "total_tokens": 18}}).encode()
        plain = Reply(headers={"Content-Type": "application/json"}, body=told)
        packed = Reply(
            headers={"Content-Type": "application/json", "Content-Encoding": "gzip"}, body=gzip.compress(told)
        )
        asked = json.dumps({"model": "m", "max_tokens": 500, "messages": [{"role": "user", "content": "hi"}]}).encode()
        options: dict[str, Any] = {"limits": "6000/minute as tokens", "usage": chat, "key": "model"}
        with self.asking(plain, packed, **options) as (client, _, budget):
            answers = [client.ask("POST", headers={"Content-Type": "application/json"}, body=asked) for _ in range(2)]
        assert [each.body for each in answers] == [told, told]
        assert budget.report().units["tokens"] == 36


class AwaitedSuite(TransportSuite):
    """What every transport in event loops does."""

    def test_a_caller_that_is_cancelled_gives_its_place_back(self) -> None:
        """The next caller is sent at the instant that the cancelled one had."""
        with self.asking(limits="60/minute", moves=False) as (client, service, budget):
            assert isinstance(client, AwaitedClient)
            client.ask()
            client.cancel(client.begin())
            waiting = client.begin()
            for _ in range(25):
                service.clock.advance(GAP / 20)
                threading.Event().wait(0.01)
            assert client.result(waiting).status == 200
        first, second = service.seen
        assert GAP - 0.001 < second.at - first.at < 1.3 * GAP
        assert budget.report().sent == 2

    def test_a_request_that_is_cancelled_under_way_stays_counted(self) -> None:
        """The server may have done the work; the connection is free for the next request."""
        with self.asking(moves=False) as (client, service, budget):
            assert isinstance(client, AwaitedClient)
            client.ask()
            service.hold()
            client.cancel(client.begin())
            service.release()
            assert client.ask().status == 200
        assert budget.report().sent == len(service.seen) == 3
