"""`LoadShedder`: permits as values and as blocks, modes, deadlines, and callers that hold it wrong."""

from __future__ import annotations

import gc
import pickle
import threading

import pytest

from headgate import InvalidCall, Overloaded
from headgate.shed import LoadShedder, context, outgoing_headers
from tests.support.servers import wait_until


def test_a_permit_is_a_value(clock):
    """Without a timeout the answer is there at once: true while fewer than the limit are held, false from then on."""
    shedder = LoadShedder(2, clock=clock)
    held = [shedder.permit("critical"), shedder.permit("sheddable")]
    refused = shedder.permit("critical")
    assert [bool(each) for each in (*held, refused)] == [True, True, False]
    assert (refused.reason, refused.outcome, refused.release()) == ("limit", None, False)
    assert 1 <= refused.retry_after <= 31
    assert held[0].release("dropped") is True
    assert (held[0].outcome, held[0].release(), bool(held[0])) == ("dropped", False, True)
    assert shedder.permit("sheddable")


def test_a_refused_block_raises(clock):
    """`with` raises `Overloaded`, which says class, reason and when to come back, also after pickling."""
    shedder = LoadShedder(1, clock=clock)
    with shedder.permit("critical"), pytest.raises(Overloaded) as raised, shedder.permit("sheddable"):
        pytest.fail("there was no permit left")
    error = pickle.loads(pickle.dumps(raised.value))
    assert (error.request_class, error.reason) == ("sheddable", "limit")
    assert error.retry_after == raised.value.retry_after
    assert str(error).startswith("overloaded (limit): a sheddable request was refused; retry after ")


@pytest.mark.parametrize(("error", "outcome"), [(None, "success"), (ValueError, "ignored"), (TimeoutError, "dropped")])
def test_a_block_ends_its_permit(clock, error, outcome):
    """A block that ends well is a success, a timeout is a drop, any other error says nothing of the load."""
    shedder = LoadShedder(1, clock=clock)
    permit = shedder.permit()
    try:
        with permit:
            if error is not None:
                raise error
    except (ValueError, TimeoutError):
        pass
    assert (permit.outcome, shedder.stats().in_flight) == (outcome, 0)
    with pytest.raises(InvalidCall, match="cannot be used twice"), permit:
        pytest.fail("it was used twice")


def test_the_start_of_a_response_is_the_sample(clock):
    """Latency counts up to `answered`, while the permit is held until its release: a stream is not a slow request."""
    shedder = LoadShedder(1, clock=clock)
    permit = shedder.permit()
    clock.advance(0.2)
    permit.answered()
    clock.advance(60)
    assert not shedder.permit()
    permit.release()
    assert shedder.stats().latency == 0.2
    assert shedder.permit()


def test_a_thread_waits_for_a_permit():
    """A caller with a timeout goes on as soon as another one ends."""
    shedder = LoadShedder(1)
    first = shedder.permit()
    order = []

    def wait():
        with shedder.permit("critical", timeout=60):
            order.append("second")

    thread = threading.Thread(target=wait)
    thread.start()
    while not shedder.stats().waiting:
        pass
    order.append("first")
    first.release()
    thread.join()
    assert order == ["first", "second"]
    assert (shedder.stats().in_flight, shedder.stats().waiting) == (0, 0)


def test_a_thread_waits_no_longer_than_its_timeout(clock):
    """At the end of the timeout the request is refused, and its place is free."""
    shedder = LoadShedder(1, clock=clock)
    start = clock.now_us()
    with shedder.permit():
        with pytest.raises(Overloaded, match="queue"), shedder.permit(timeout=0.5):
            pytest.fail("there was no permit")
        assert clock.now_us() - start == 500_000
        assert shedder.stats().waiting == 0
        with pytest.raises(Overloaded), shedder.permit(timeout=0):
            pytest.fail("there was no permit")


def test_a_permit_with_a_timeout_is_not_a_value(clock):
    """Its answer is not known before it is entered, whether or not the service is busy: asking for it is an error."""
    permit = LoadShedder(1, clock=clock).permit(timeout=1)
    for ask in (lambda: bool(permit), permit.release):
        with pytest.raises(InvalidCall, match="waits where it is entered"):
            ask()


def test_a_full_room_drops_from_the_lowest_class(clock):
    """As many requests wait as the limit; one more, of a higher class, takes the place of the lowest."""

    class Waiter:
        def __init__(self, request_class):
            self.permit, self.woken = shedder.permit(request_class, timeout=10), 0
            self.decided = shedder.ask(self.permit, self)

        def wake(self):
            self.woken += 1

    shedder = LoadShedder(2, clock=clock)
    held = [shedder.permit(), shedder.permit()]
    low, middle = Waiter("sheddable"), Waiter("sheddable_plus")
    assert [low.decided, middle.decided, shedder.stats().waiting] == [False, False, 2]
    lower = Waiter("sheddable")
    assert (lower.decided, lower.permit.reason) == (True, "queue")  # it would be served last
    high = Waiter("critical")
    assert (low.permit.state, low.permit.reason, low.woken) == ("refused", "queue", 1)
    assert (high.decided, shedder.stats().waiting) == (False, 2)
    for permit in held:
        permit.release()
    assert (high.permit.state, middle.permit.state, high.woken, middle.woken) == ("held", "held", 1, 1)
    assert shedder.stats().refused == {("sheddable", "queue"): 2}


def test_a_deadline_that_cannot_be_met_is_refused_at_once(clock):
    """A request whose caller waits for less than the time of a service that is idle is not begun."""
    shedder = LoadShedder(clock=clock)
    for _ in range(60):
        permit = shedder.permit()
        clock.advance(0.1)
        permit.release()
    assert shedder.stats().base_latency == pytest.approx(0.1)
    assert shedder.permit(deadline=0.05).reason == "deadline"
    assert shedder.permit("critical_plus", deadline=0.05).reason == "deadline"
    assert shedder.permit(deadline=0.2)


def test_a_waiting_request_leaves_time_for_its_work(clock):
    """With a deadline of 0.3 s and a service that takes 0.1 s, a request waits for 0.2 s although it would for 1."""
    shedder = LoadShedder(clock=clock)
    for _ in range(60):
        permit = shedder.permit()
        clock.advance(0.1)
        permit.release()
    shedder.estimator.limit = shedder.estimator.undipped = 1
    start = clock.now_us()
    with shedder.permit(), pytest.raises(Overloaded), shedder.permit(timeout=1, deadline=0.3):
        pytest.fail("there was no permit")
    assert clock.now_us() - start == pytest.approx(200_000, abs=2)


def test_observing_admits_all_and_counts(clock):
    """In `observe` nothing is refused; the counts are of what would have been."""
    shedder = LoadShedder(1, mode="observe", clock=clock)
    permits = [shedder.permit("sheddable") for _ in range(3)]
    assert all(permits)
    assert shedder.stats().refused == {("sheddable", "limit"): 2}
    for permit in permits:
        permit.release()
    assert (shedder.stats().in_flight, shedder.stats().admitted) == (0, 3)


def test_the_kill_switch_works_at_once():
    """Set to `off` or `observe`, a shedder lets those who wait go on, and refuses nobody; set back, it counts on."""
    shedder = LoadShedder(1)
    first = shedder.permit()
    entered = threading.Event()

    def wait():
        with shedder.permit(timeout=60):
            entered.set()

    thread = threading.Thread(target=wait)
    thread.start()
    while not shedder.stats().waiting:
        pass
    shedder.mode = "off"
    thread.join()
    assert entered.is_set()
    assert [bool(shedder.permit()) for _ in range(3)] == [True] * 3
    shedder.mode = "enforce"
    assert shedder.stats().refused == {}
    assert not shedder.permit()
    first.release()


def test_the_kill_switch_reaches_a_request_that_is_about_to_wait(clock):
    """A mode that is set after the request was looked at, and before it waits, still lets it go on."""

    def switched_off() -> float:
        shedder.mode = "off"
        return 0.0

    shedder = LoadShedder(1, workers=[switched_off], mode="off", clock=clock)
    held = shedder.permit()
    shedder.mode = "enforce"
    with shedder.permit(timeout=60):
        assert shedder.stats().in_flight == 2
    assert held.release()
    assert shedder.stats().refused == {}


def test_a_lost_permit_comes_back(caplog, clock):
    """A permit that nothing refers to any more is taken back, by the next request or the next look at the numbers."""
    shedder = LoadShedder(1, clock=clock)
    shedder.permit()
    gc.collect()
    assert shedder.stats().in_flight == 0
    shedder.permit()
    gc.collect()
    assert shedder.permit()
    assert caplog.text.count("permits of a load shedder were lost without a release (1): use `with`") == 1


@pytest.mark.parametrize("found_by", ["numbers", "request", "timeout"])
def test_a_lost_permit_goes_to_a_request_that_waits(found_by):
    """Before a request that comes later, and at the latest at the end of the timeout."""
    shedder = LoadShedder(1)
    lost = [shedder.permit()]
    served = threading.Event()

    def wait():
        with shedder.permit("critical", timeout=2 if found_by == "timeout" else 60):
            served.set()

    thread = threading.Thread(target=wait)
    thread.start()
    wait_until(lambda: shedder.stats().waiting, "the other thread waits")
    lost.clear()
    gc.collect()
    if found_by == "numbers":
        shedder.stats()
    elif found_by == "request":
        assert not shedder.permit("sheddable") or served.wait(30)
    thread.join(30)
    assert served.is_set()


def test_lost_permits_are_logged_once_a_minute(caplog, clock):
    """A caller that forgets one forgets thousands: the log says how to do better, and is not filled by it."""
    shedder = LoadShedder(1, clock=clock)
    for second in range(121):
        shedder.permit()
        gc.collect(0)  # the youngest objects are enough, and quick to look through
        assert shedder.stats().in_flight == 0
        assert len(caplog.records) == 1 + second // 60
        clock.advance(1)


@pytest.mark.parametrize(
    "call",
    [
        lambda: LoadShedder().permit("urgent"),
        lambda: LoadShedder().permit(["critical"]),
        lambda: LoadShedder().permit(weight=0, timeout=1),
        lambda: LoadShedder().permit(weight=-1),
        lambda: LoadShedder().permit(weight=float("nan")),
        lambda: LoadShedder().permit(weight=10**400),
        lambda: LoadShedder().permit(tenant=["acme"]),
        lambda: LoadShedder().permit(tenant=None, timeout=1),
        lambda: LoadShedder().permit(timeout=float("nan")),
        lambda: LoadShedder().permit(deadline=float("nan")),
        lambda: LoadShedder().permit(deadline=-1),
        lambda: LoadShedder().permit(timeout=-1),
        lambda: LoadShedder().permit(deadline="1s"),
        lambda: LoadShedder().permit().release("done"),
        lambda: LoadShedder(mode="on"),
        lambda: LoadShedder(1.5),
        lambda: LoadShedder(None),
        lambda: LoadShedder(10**30),
        lambda: LoadShedder(classes="critical"),
        lambda: LoadShedder(classes=["a", "a"]),
        lambda: LoadShedder(classes=[]),
        lambda: LoadShedder(workers=["bussy"]),
    ],
)
def test_wrong_arguments_are_told(call):
    """Every mistake is an `InvalidCall` that shows the value."""
    with pytest.raises(InvalidCall, match=r"got |unknown "):
        call()


def test_sixteen_threads_never_exceed_the_limit():
    """Under contention the permits held never exceed the limit, and all of them come back."""
    shedder = LoadShedder(4)
    inside, most, lock = 0, 0, threading.Lock()

    def work():
        nonlocal inside, most
        for number in range(300):
            try:
                with shedder.permit("critical" if number % 2 else "sheddable", tenant=str(number % 3), timeout=5):
                    with lock:
                        inside += 1
                        most = max(most, inside)
                    with lock:
                        inside -= 1
            except Overloaded:
                pass

    threads = [threading.Thread(target=work) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    stats = shedder.stats()
    assert most <= 4
    assert (stats.in_flight, stats.waiting) == (0, 0)
    assert stats.admitted + sum(stats.refused.values()) == 16 * 300


def test_a_free_permit_may_be_granted_before_it_is_entered(clock):
    """With `at_once` and a timeout, a free permit is held already, and one that has to wait takes its tenant later."""
    shedder = LoadShedder(1, clock=clock)
    first = shedder.permit("critical", timeout=1, at_once=True)
    second = shedder.permit("critical", timeout=1, at_once=True)
    assert (first.state, second.state, shedder.stats().refused) == ("held", "asked", {})
    second.tenant = "acme"
    first.release()
    with second:
        assert (second.state, shedder.stats().in_flight) == ("held", 1)
    late = shedder.permit(timeout=1, deadline=0, at_once=True)
    assert (late.state, late.reason) == ("refused", "deadline")


def test_chance_is_asked_once_for_a_request_that_waits(clock):
    """A request that the workers did not shed when it came is not shed when it begins to wait."""
    shedder = LoadShedder(1, workers=[lambda: 0.0], clock=clock)
    held = shedder.permit("sheddable")
    waits = shedder.permit("sheddable", timeout=1, at_once=True)
    assert shedder._workers is not None
    shedder._workers._amount.value = 2.0
    held.release()
    with waits:
        assert waits.state == "held"
    assert shedder.permit("sheddable").reason == "workers"


def test_a_refusal_by_another_part_is_counted(clock):
    """The fleet's refusals are among the others, and tell the caller when to come back."""
    shedder = LoadShedder(clock=clock)
    permit = shedder.permit("sheddable")
    assert shedder.count_refusal(permit, "fleet") >= 1
    permit.release("ignored")
    assert shedder.stats().refused == {("sheddable", "fleet"): 1}


def test_a_deadline_that_has_passed_leaves_no_time(clock, monkeypatch):
    """Calls of other services are told 0 ms, never a negative number."""
    with LoadShedder(clock=clock).permit("critical", deadline=60):
        later = context.steady_ns() + 61 * 10**9
        monkeypatch.setattr(context, "steady_ns", lambda: later)
        assert outgoing_headers()["x-timeout-ms"] == "0"


def test_a_block_passes_its_deadline_on(clock):
    """The time that is left is among the outgoing header fields inside the block, and gone after it."""
    with LoadShedder(clock=clock).permit("critical", deadline=60):
        fields = outgoing_headers()
    assert (fields["x-request-class"], 59_000 < int(fields["x-timeout-ms"]) <= 60_000) == ("critical", True)
    assert outgoing_headers() == {}
