"""The tests of `pause`, which are a part of `StoreSuite`."""

from __future__ import annotations

from headgate.call import Call
from headgate.limit import Limit
from headgate.limiter import Limiter
from headgate.policy import Policy
from headgate.stores import Store
from headgate.testing.clock import ManualClock
from headgate.testing.suite_limits import EVERY_ALGORITHM, PAUSABLE
from headgate.testing.traces import compare

START = 1_000_000_020.0


class PauseSuite:
    """The tests of a store's pauses."""

    def store(self, clock: ManualClock) -> Store:
        """Return an empty store that uses this clock."""
        raise TypeError("a subclass of StoreSuite must define store(clock)")

    seeds = range(4)
    """The seeds of the traces for each limit."""
    steps = 150

    def _pausable(self, *limits: str) -> tuple[Limiter, ManualClock]:
        clock = ManualClock(START)
        return Limiter(*limits, store=self.store(clock), on_error="raise", pausable=True), clock

    def test_pauses_answer_as_the_reference_does(self) -> None:
        """A store and the reference give equal answers to random traces in which keys are paused."""
        for text in PAUSABLE:
            for seed in self.seeds:
                compare(text, self.store, seed, self.steps, pausable=True)

    def test_a_paused_key_is_refused_until_the_instant(self) -> None:
        """Every verb refuses a paused key one microsecond before the end of the pause, and no verb refuses it then."""
        for algorithm in EVERY_ALGORITHM:
            limiter, clock = self._pausable(f"10/minute by {algorithm}")
            limiter.pause("k", 30)
            for elapsed in (0, 1, 29_999_999):
                clock.us = round(START * 1e6) + elapsed
                verbs = limiter.hit("k"), limiter.peek("k", 3), limiter.take_up_to("k", 5), limiter.permit("k").decision
                for refused in verbs:
                    assert (refused.allowed, refused.remaining) == (False, 0), algorithm
                    assert (refused.retry_us, refused.binding.name) == (30_000_000 - elapsed, "pause"), algorithm
                assert limiter.paused("k") == (30_000_000 - elapsed) / 1e6, algorithm
                assert limiter.peek("other").remaining == 10, algorithm
            clock.us = round(START * 1e6) + 30_000_000
            assert (limiter.paused("k"), limiter.hit("k", 10).remaining) == (0.0, 0), algorithm

    def test_a_refusal_tells_the_longer_of_pause_and_limit(self) -> None:
        """If limit and pause refuse, `retry_after` is the longer time of both, and `binding` the one it belongs to."""
        for algorithm in EVERY_ALGORITHM:
            limiter, _ = self._pausable(f"10/minute by {algorithm}")
            limiter.hit("k", 10)
            own = limiter.peek("k").retry_after
            limiter.pause("k", 1)
            assert (limiter.hit("k").retry_after, limiter.hit("k").binding.name) == (own, ""), algorithm
            limiter.pause("k", 500)
            assert (limiter.hit("k").retry_after, limiter.hit("k").binding.name) == (500.0, "pause"), algorithm

    def test_of_two_pauses_the_later_counts(self) -> None:
        """A pause that ends earlier changes nothing, and pauses do not add up."""
        limiter, clock = self._pausable("10/minute")
        limiter.pause("k", 20)
        limiter.pause("k", 5)
        limiter.pause("k", 20)
        assert limiter.paused("k") == 20.0
        clock.advance(10)
        limiter.pause("k", 9)
        assert limiter.paused("k") == 10.0
        limiter.pause("k", 11)
        assert limiter.paused("k") == 11.0

    def test_a_paused_call_charges_nothing(self) -> None:
        """Calls that a pause refuses leave the limits as they were."""
        for algorithm in EVERY_ALGORITHM:
            limiter, _ = self._pausable(f"10/minute by {algorithm}")
            limiter.hit("k", 4)
            before = limiter.peek("k", 0).verdicts[0]
            limiter.pause("k", 1e-6)
            assert not any(limiter.hit("k") or limiter.take_up_to("k", 2) for _ in range(20)), algorithm
            assert limiter.peek("k", 0).verdicts[0] == before, algorithm

    def test_a_cost_of_nothing_passes_a_pause(self) -> None:
        """`hit(cost=0)` is allowed during a pause too, and shows it: nothing remains, and the reset is its end."""
        limiter, _ = self._pausable("10/minute")
        limiter.pause("k", 7)
        seen = limiter.hit("k", 0)
        assert (seen.allowed, seen.remaining, seen.reset_after) == (True, 0, 7.0)

    def test_reset_ends_a_pause(self) -> None:
        """`reset` ends the pause of its key and of no other; `store.clear` ends every pause of a namespace."""
        limiter, _ = self._pausable("10/minute")
        limiter.pause("k", 60)
        limiter.pause("other", 60)
        limiter.reset("k")
        assert (limiter.paused("k"), limiter.paused("other")) == (0.0, 60.0)
        assert limiter.hit("k") and not limiter.hit("other")
        limiter.store.clear(limiter.namespace)
        assert limiter.hit("other").remaining == 9

    def test_a_pause_is_seen_by_every_pausable_limiter_of_the_namespace(self) -> None:
        """Limiters of other limits refuse the key too; another namespace or a limiter without `pausable` does not."""
        limiter, clock = self._pausable("10/minute")
        limiter.pause("k", 60)
        store = limiter.store
        for text in ("10/minute", "5/hour by sliding-log", "3 in flight"):
            assert Limiter(text, store=store, pausable=True, on_error="raise").peek("k").retry_after == 60.0, text
            assert Limiter(text, store=store, on_error="raise").peek("k"), text
        assert Limiter("10/minute", store=store, pausable=True, namespace="else", on_error="raise").hit("k")
        clock.advance(60)
        assert limiter.hit("k")

    def test_a_reservation_begins_after_the_pause(self) -> None:
        """Reservations during a pause are spaced from its end, as they would be from now; `max_wait` covers it too."""
        limiter, clock = self._pausable("10/second burst 2")
        limiter.pause("k", 60)
        assert [limiter.reserve("k").delay for _ in range(4)] == [60.0, 60.0, 60.1, 60.2]
        refused = limiter.reserve("k", max_wait=60)
        assert (bool(refused), refused.retry_after) == (False, 60.3)
        clock.advance(60)
        assert limiter.hit("k").retry_after == 0.3

    def test_plans_and_calls_of_a_decision_are_paused(self) -> None:
        """A call with `limit=` is refused too, and `decide` is refused if any of its keys is paused."""
        limiter, _ = self._pausable("10/minute as user")
        org = Limit.parse("8/minute by sliding-log as org")
        limiter.pause("o", 60)
        assert limiter.hit("o", limit="100/minute as user").retry_after == 60.0
        refused = limiter.decide(Call(limiter.limits[0], "u"), Call(org, "o", cost=2))
        assert (refused.allowed, refused.retry_after, refused.binding.name) == (False, 60.0, "pause")
        assert limiter.decide(Call(limiter.limits[0], "u"), Call(org, "p")).remaining == 7
        assert limiter.hit("u", {"user": 2}).remaining == 7

    def test_a_key_of_a_policy_is_banned(self) -> None:
        """A ban of up to 366 days is exact to the microsecond, of one key under one rule, and ends by `unban`."""
        clock = ManualClock(START)
        store = self.store(clock)
        rules = [{"name": name, "key": "user", "limits": "10/minute"} for name in ("api", "other")]
        limits = Policy({"rules": rules}).bind(store)
        limits.ban("api", "u", "366 days")
        limits.ban("api", "v", 10)
        limits.ban("api", "v", 5)
        clock.advance(9.999999)
        assert [limits.peek("api", user).retry_us for user in ("u", "v", "w")] == [
            366 * 86_400_000_000 - 9_999_999,
            1,
            0,
        ]
        assert limits.peek("other", "u")
        clock.advance(0.000001)
        assert limits.peek("api", "v").remaining == 10
        assert not limits.peek("api", "u")
        limits.unban("api", "u")
        assert limits.peek("api", "u")
        limits.ban("api", "u", "1h")
        store.clear("policy")
        assert limits.peek("api", "u")
