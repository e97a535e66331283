"""Retries: which failures are sent again, by which methods, after which wait, and where the caps are."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate import InvalidCall
from headgate.client.retrying import Attempted, GiveUp, Retries, Retry, decide, retried_above
from headgate.client.server_limits import ServerResponse

pytestmark = pytest.mark.engineless

REFUSED = ServerResponse(429, refused=True)
KEYED = {"Idempotency-Key": "k"}


def half() -> float:
    return 0.5


def answer(status: int, retry_after: float | None = None, should_retry: bool | None = None) -> ServerResponse:
    """An answer with this status; 429 is a refusal."""
    return ServerResponse(status, status == 429, retry_after, should_retry)


def decided(sent, outcome, retries=Retries(), random=half):  # noqa: B008 - frozen
    return decide(sent, outcome, retries, random)


@pytest.mark.parametrize(
    ("outcome", "get", "post", "keyed"),
    [
        (answer(429), "yes", "yes", "yes"),
        (answer(503, 1.0), "yes", "yes", "yes"),
        (answer(503, 0.0), "yes", "yes", "yes"),
        ("refused", "yes", "yes", "yes"),
        (ServerResponse(403, refused=True), "yes", "yes", "yes"),
        (answer(503), "yes", "method", "yes"),
        (answer(408), "yes", "method", "yes"),
        (answer(502), "yes", "method", "yes"),
        (answer(504), "yes", "method", "yes"),
        (answer(529), "yes", "method", "yes"),
        (answer(529, 1.0), "yes", "method", "yes"),
        ("lost", "yes", "method", "yes"),
        (answer(500), "final", "final", "final"),
        (answer(403), "final", "final", "final"),
        (answer(404), "final", "final", "final"),
        (answer(200), "final", "final", "final"),
        (answer(200, 1.0), "final", "final", "final"),
        (answer(500, should_retry=True), "yes", "yes", "yes"),
        (answer(529, should_retry=True), "yes", "yes", "yes"),
        (answer(200, should_retry=True), "final", "final", "final"),
        (answer(429, should_retry=False), "forbidden", "forbidden", "forbidden"),
        (answer(503, 1.0, should_retry=False), "forbidden", "forbidden", "forbidden"),
        (answer(404, should_retry=False), "final", "final", "final"),
    ],
)
def test_a_ledger_of_failures(outcome, get, post, keyed):
    """A request that was not processed is sent again by any method, others only if a second time does no harm."""
    requests = {"get": Attempted("GET"), "post": Attempted("POST"), "keyed": Attempted("POST", KEYED)}
    found = {name: decided(sent, outcome) for name, sent in requests.items()}
    words = {name: "yes" if isinstance(each, Retry) else each.reason for name, each in found.items()}
    assert words == {"get": get, "post": post, "keyed": keyed}


@pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE", "get"])
def test_an_idempotent_method_is_sent_again_after_a_lost_connection(method):
    """RFC 9110 names the methods that have the same effect if they are sent twice."""
    assert decided(Attempted(method), "lost") == Retry(0.25)


@pytest.mark.parametrize("method", ["POST", "PATCH", "CONNECT", "LOCK", ""])
def test_any_other_method_is_not(method):
    """The server may have done what was asked: a second order is worse than an error."""
    assert decided(Attempted(method), "lost") == GiveUp("method")
    assert decided(Attempted(method, {"idempotency-key": "k"}), "lost") == Retry(0.25)
    assert decided(Attempted(method, {"Idempotency-Key": ""}), "lost") == GiveUp("method")


def test_a_body_that_cannot_be_sent_twice_is_not():
    """However well the failure is understood."""
    for outcome in (REFUSED, "refused", answer(500, should_retry=True)):
        assert decided(Attempted("GET", repeatable=False), outcome) == GiveUp("body")
    assert decided(Attempted("GET", repeatable=False), answer(404)) == GiveUp("final")


@pytest.mark.parametrize(
    ("count", "above"),
    [("0", False), ("", False), ("1", True), ("2", True), (" 10 ", True), ("00", False), ("x", False)],
)
def test_a_request_of_an_sdk_that_retries_is_left_to_it(count, above):
    """Retries within retries multiply: 3 x 4 attempts are 12. An SDK counts its own in a header field."""
    sent = Attempted("GET", {"X-Stainless-Retry-Count": count})
    assert retried_above(sent) is above
    assert decided(sent, REFUSED) == (GiveUp("sdk") if above else Retry(0.25))


@pytest.mark.parametrize(
    ("attempts", "outcome", "lowest", "highest"),
    [
        (1, REFUSED, 0.0, 0.5),
        (2, "refused", 0.0, 1.0),
        (3, answer(503), 0.0, 2.0),
        (1, answer(429, 8.0), 8.0, 8.0),
        (3, answer(429, 60.0), 60.0, 60.0),
        (1, answer(503, 8.0), 8.0, 12.0),
        (1, answer(529, 8.0), 8.0, 12.0),
        (1, answer(408, 8.0), 8.0, 12.0),
        (1, answer(503, 40.0), 40.0, 60.0),
        (1, answer(503, 50.0), 50.0, 60.0),
        (1, answer(503, 60.0), 60.0, 60.0),
        (2, answer(429, 0.0), 0.0, 1.0),
        (2, answer(503, 0.0), 0.0, 1.0),
    ],
)
def test_a_ledger_of_waits(attempts, outcome, lowest, highest):
    """A 429 waits the told time, others up to half more within the caps, an untold time is full jitter."""
    sent = Attempted("GET", attempts=attempts)
    assert decided(sent, outcome, random=lambda: 0.0) == Retry(lowest)
    assert decided(sent, outcome, random=lambda: 1.0) == Retry(highest)


def test_a_spread_is_cut_at_the_caps():
    """A wait of 50 s is spread up to 75 s. Half of a crowd waits the longest time, as spread as its failures were."""
    waits = [
        decided(Attempted("GET"), answer(503, 50.0), random=lambda chance=chance: chance) for chance in (0.2, 0.4, 0.9)
    ]
    assert waits == [Retry(55.0), Retry(60.0), Retry(60.0)]


def test_there_are_at_most_four_attempts():
    """The first one included."""
    assert [decided(Attempted("GET", attempts=made), REFUSED) for made in (1, 2, 3, 4, 9)] == [
        Retry(0.25), Retry(0.5), Retry(1.0), GiveUp("attempts"), GiveUp("attempts"),
    ]  # fmt: skip


@pytest.mark.parametrize("told", [60.001, 171.0, 259_200.0])
def test_three_days_are_not_slept(told):
    """A told time above the longest wait gives the caller the answer at once."""
    assert decided(Attempted("GET"), answer(429, told)) == GiveUp("longest_wait")
    assert decided(Attempted("GET"), answer(503, told)) == GiveUp("longest_wait")


def test_no_wait_ends_after_the_time_in_all():
    """A wait is begun only if it ends in time; the spread of a told time is narrowed to the rest."""
    assert decided(Attempted("GET", elapsed=100), answer(429, 20.0)) == Retry(20.0)
    assert decided(Attempted("GET", elapsed=100.001), answer(429, 20.0)) == GiveUp("in_all")
    assert decided(Attempted("GET", elapsed=96), answer(503, 20.0), random=lambda: 1.0) == Retry(24.0)
    assert decided(Attempted("GET", elapsed=119.8), "refused") == GiveUp("in_all")
    assert decided(Attempted("GET", elapsed=130), "refused", random=lambda: 0.0) == GiveUp("in_all")


def test_caps_are_settable():
    """Attempts, the longest wait, the time in all, base and ceiling of the backoff."""
    patient = Retries(attempts=9, longest_wait=600, in_all=3600, base=2, ceiling=100)
    assert decided(Attempted("GET", attempts=8, elapsed=3000), answer(429, 600.0), patient) == Retry(600.0)
    assert decided(Attempted("GET", attempts=2), REFUSED, patient) == Retry(2.0)
    assert decided(Attempted("GET", attempts=8), REFUSED, patient) == Retry(50.0)
    assert decided(Attempted("GET", attempts=8), REFUSED, Retries(attempts=9, longest_wait=3)) == Retry(1.5)
    assert decided(Attempted("GET"), REFUSED, Retries(attempts=1)) == GiveUp("attempts")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"attempts": 0}, "attempts must be a whole number from 1; got 0"),
        ({"attempts": 2.0}, "attempts must be a whole number from 1; got 2.0"),
        ({"longest_wait": -1}, "longest_wait must be a number of seconds from 0; got -1"),
        ({"in_all": float("inf")}, "in_all must be a number of seconds from 0; got inf"),
        ({"base": 0}, "base must be a number of seconds above 0; got 0"),
        ({"ceiling": "30"}, "ceiling must be a number of seconds from 0; got '30'"),
    ],
)
def test_bad_caps_are_named(given, message):
    """The error tells which cap is wrong, which values fit, and what was given."""
    with pytest.raises(InvalidCall) as raised:
        Retries(**given)
    assert str(raised.value) == message


outcomes = st.one_of(
    st.sampled_from(["refused", "lost"]),
    st.builds(
        answer,
        st.sampled_from([200, 404, 408, 429, 500, 502, 503, 504, 529]),
        st.none() | st.floats(0, 3e7),
        st.sampled_from([None, True, False]),
    ),
)


@given(
    outcomes, st.integers(1, 10**6), st.floats(0, 1e6), st.floats(0, 1),
    st.builds(Retries, st.integers(1, 50), st.floats(0, 1e5), st.floats(0, 1e5), st.floats(1e-3, 9), st.floats(0, 1e4)),
)  # fmt: skip
def test_never_early_and_never_above_a_cap(outcome, attempts, elapsed, chance, retries):
    """A retry comes no earlier than the told time, within each cap, and never from a server that forbids it."""
    decision = decided(Attempted("GET", attempts=attempts, elapsed=elapsed), outcome, retries, lambda: chance)
    if isinstance(decision, Retry):
        told = outcome.retry_after if isinstance(outcome, ServerResponse) else None
        assert (told or 0) <= decision.wait <= retries.longest_wait
        assert decision.wait <= retries.in_all - elapsed
        assert attempts < retries.attempts
        assert not (isinstance(outcome, ServerResponse) and outcome.should_retry is False)
