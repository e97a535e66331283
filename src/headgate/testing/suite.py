"""`StoreSuite`: the tests that every store must pass. A new store's test is a subclass with one method.

    class TestMyStore(StoreSuite):
        def store(self, clock):
            return MyStore(clock=clock)

It uses plain assertions and no sleeps, and runs under pytest or unittest.
"""

from __future__ import annotations

from collections.abc import Iterator

from headgate.call import Call
from headgate.errors import InvalidCall, InvalidLimit
from headgate.limit import Limit
from headgate.limiter import Limiter
from headgate.testing.clock import ManualClock
from headgate.testing.suite_limits import EVERY_ALGORITHM, PLANS, SEVERAL, SINGLE
from headgate.testing.suite_records import RecordsSuite
from headgate.testing.suite_seams import SeamSuite
from headgate.testing.traces import compare


class StoreSuite(RecordsSuite, SeamSuite):
    """The tests of a store: write a subclass that defines `store`."""

    def _limiter(self, *limits: str, at: float = 0.0) -> tuple[Limiter, ManualClock]:
        clock = ManualClock(at)
        return Limiter(*limits, store=self.store(clock), on_error="raise"), clock

    def _every(self, rate: str = "10/minute") -> Iterator[tuple[str, Limiter, ManualClock]]:
        for algorithm in EVERY_ALGORITHM:
            yield algorithm, *self._limiter(f"{rate} by {algorithm}", at=1_000_000_020.0)

    def test_answers_as_the_reference_does(self) -> None:
        """A store and the reference give equal answers to random traces: every field of every verdict is the same."""
        for text in (*SINGLE, *SEVERAL):
            for seed in self.seeds:
                compare(text, self.store, seed, self.steps)

    def test_plans_answer_as_the_reference_does(self) -> None:
        """A plan reads a state that another plan has written exactly as the reference reads it."""
        for own, *others in PLANS:
            for seed in self.seeds:
                compare(own, self.store, seed, self.steps, others)

    def test_admits_exactly_the_limit(self) -> None:
        """At one instant the store admits the amount, and not one unit more."""
        for algorithm, limiter, _ in self._every():
            assert [limiter.hit("k").remaining for _ in range(10)] == list(range(9, -1, -1)), algorithm
            assert not limiter.hit("k"), algorithm
            assert limiter.hit("other"), algorithm

    def test_retry_is_exact(self) -> None:
        """A refused call is refused one microsecond before its retry, and admitted at it."""
        for algorithm, limiter, clock in self._every():
            for cost in (1, 3, 10):
                limiter.take_up_to("k", 10)
                refused = limiter.peek("k", cost)
                assert not refused, algorithm
                start = clock.us
                clock.us = start + refused.retry_us - 1
                assert not limiter.peek("k", cost), (algorithm, cost)
                clock.us = start + refused.retry_us
                assert limiter.peek("k", cost), (algorithm, cost)

    def test_a_refusal_charges_nothing(self) -> None:
        """Refused calls, however many, do not change `remaining` or `reset_after`."""
        for algorithm, limiter, _ in self._every():
            limiter.hit("k", 8)
            before = limiter.peek("k", 0).verdicts
            assert not any(limiter.hit("k", 3) for _ in range(50)), algorithm
            assert limiter.peek("k", 0).verdicts == before, algorithm
            assert limiter.hit("k", 2), algorithm

    def test_never_is_not_later(self) -> None:
        """A cost above the burst is refused, and `never` is true: a retry cannot succeed."""
        for algorithm, limiter, _ in self._every():
            refused = limiter.hit("k", 11)
            assert (refused.allowed, refused.never, refused.retry_after, refused.remaining) == (
                False,
                True,
                float("inf"),
                10,
            ), algorithm

    def test_a_cost_of_nothing_is_always_allowed(self) -> None:
        """`hit(cost=0)` is allowed even for a key that has nothing left, and charges nothing."""
        for algorithm, limiter, _ in self._every():
            limiter.hit("k", 10)
            asked = limiter.hit("k", 0)
            assert asked and asked.remaining == 0 and asked.granted == 0, algorithm

    def test_peek_writes_nothing(self) -> None:
        """`peek` tells whether `hit` would be allowed, and changes nothing; `remaining` is the present number."""
        for algorithm, limiter, _ in self._every():
            there = limiter.hit("k", 4)
            seen = {(p.allowed, p.retry_us, p.remaining, p.reset_us) for p in (limiter.peek("k", 6) for _ in range(20))}
            assert seen == {(True, 0, 6, there.reset_us)}, algorithm
            refused = limiter.peek("k", 7)
            assert (refused.allowed, refused.remaining, refused.reset_us) == (False, 6, there.reset_us), algorithm
            assert limiter.hit("k", 6).remaining == 0, algorithm

    def test_reset_is_when_all_could_pass(self) -> None:
        """At `reset_after` the whole burst is allowed at once; a microsecond before it is refused."""
        for algorithm, limiter, clock in self._every():
            limiter.hit("k", 7)
            start, wait = clock.us, limiter.peek("k", 0).reset_us
            clock.us = start + wait - 1
            assert not limiter.peek("k", 10), algorithm
            clock.us = start + wait
            assert limiter.peek("k", 10), algorithm
            assert limiter.peek("k", 0).reset_us == 0, algorithm

    def test_several_limits_are_charged_all_or_none(self) -> None:
        """If one of two limits refuses, the other is not charged; `binding` is the limit that refuses."""
        for algorithm in EVERY_ALGORITHM:
            limiter, _ = self._limiter(
                f"10/second by {algorithm} as small", f"100/hour by {algorithm} as large", at=1e9
            )
            for _ in range(10):
                assert limiter.hit("k"), algorithm
            refused = limiter.hit("k")
            assert not refused and refused.binding.name == "small", algorithm
            assert [verdict.remaining for verdict in limiter.peek("k", 0).verdicts] == [0, 90], algorithm
            assert [verdict.remaining for verdict in refused.verdicts] == [0, 90], algorithm
            assert [verdict.allowed for verdict in refused.verdicts] == [False, True], algorithm

    def test_several_subjects_are_charged_all_or_none(self) -> None:
        """`decide` charges the user and the org, or neither of them."""
        limiter, _ = self._limiter("1/day", at=1e9)
        user, org = Limit.parse("5/minute as user"), Limit.parse("8/minute by sliding-log as org")
        for _ in range(4):
            assert limiter.decide(Call(user, "u1"), Call(org, "o", cost=2))
        refused = limiter.decide(Call(user, "u1"), Call(org, "o", cost=2))
        assert not refused and refused.binding == org
        assert [verdict.remaining for verdict in refused.verdicts] == [1, 0]
        assert limiter.decide(Call(user, "u1"), Call(org, "o", cost=0))
        assert limiter.decide(Call(user, "u2"), Call(org, "p"), Call(user, "u3"))
        try:
            limiter.decide(Call(user, "u1"), Call(user, "u1"))
        except InvalidCall:
            pass
        else:
            raise AssertionError("the same limit and key twice in one decision must be an error")

    def test_costs_by_name(self) -> None:
        """Each limit is charged the cost under its name."""
        limiter, _ = self._limiter("60/minute as rpm; 90000/minute by fixed-window as tpm", at=1e9)
        decision = limiter.hit("k", {"tpm": 500, "rpm": 1})
        assert [(call.limit.name, call.cost) for call in decision.calls] == [("rpm", 1), ("tpm", 500)]
        assert [verdict.remaining for verdict in decision.verdicts] == [59, 89_500]

    def test_refund_gives_back_once(self) -> None:
        """A refund gives a decision back, whole or in parts, and never more than the decision charged."""
        for algorithm, limiter, _ in self._every():
            limiter.hit("k", 2)
            spent = limiter.hit("k", 5)
            limiter.refund(spent, 2)
            assert limiter.peek("k", 0).remaining == 5, algorithm
            limiter.refund(spent)
            limiter.refund(spent)
            assert limiter.peek("k", 0).remaining == 8, algorithm
            limiter.refund("k", 1)
            assert limiter.peek("k", 0).remaining == 9, algorithm
            refused = limiter.hit("k", 10)
            limiter.refund(refused)
            assert limiter.peek("k", 0).remaining == 9, algorithm

    def test_reset_makes_a_key_as_new(self) -> None:
        """After `reset` the key has its whole burst, and other keys are unchanged."""
        for algorithm, limiter, _ in self._every():
            limiter.hit("k", 10)
            limiter.hit("other", 10)
            limiter.reset("k")
            limiter.reset("never seen")
            assert (limiter.peek("k", 0).remaining, limiter.peek("other", 0).remaining) == (10, 0), algorithm

    def test_take_up_to_takes_what_fits(self) -> None:
        """`take_up_to` charges the units that fit; it is refused only if none fits, with the retry of one unit."""
        for algorithm, limiter, _ in self._every():
            assert limiter.take_up_to("k", 7).granted == 7, algorithm
            assert limiter.take_up_to("k", 7).granted == 3, algorithm
            refused = limiter.take_up_to("k", 7)
            assert not refused and refused.granted == 0, algorithm
            assert refused.retry_us == limiter.peek("k", 1).retry_us > 0, algorithm

    def test_a_peek_begins_no_block(self) -> None:
        """Its retry is that of a `hit`, which would begin one; what remains, and until when, is what is there now."""
        for algorithm in EVERY_ALGORITHM:
            for block in ("10m", "10m, 1h"):
                limiter, _ = self._limiter(f"10/second by {algorithm} block {block}; 99/minute as all", at=1e9)
                limiter.hit("k", 7)
                there, refused = limiter.peek("k", 0), limiter.peek("k", 4)
                assert (refused.allowed, refused.retry_after) == (False, 600.0), algorithm
                assert (refused.remaining, refused.reset_us) == (there.remaining, there.reset_us), algorithm
                assert there.remaining == 3, algorithm

    def test_a_block_outlives_the_count(self) -> None:
        """A refused key stays refused for the block; further requests do not prolong it; other keys are admitted."""
        for algorithm in EVERY_ALGORITHM:
            limiter, clock = self._limiter(f"10/second by {algorithm} block 10m", at=1e9)
            limiter.hit("k", 10)
            assert limiter.peek("k").retry_after == 600.0, algorithm
            clock.advance(0.01)
            assert limiter.hit("k").retry_after == 600.0, algorithm
            for elapsed in (1.0, 300.0, 599.999999):
                clock.set(1e9 + 0.01 + elapsed)
                blocked = limiter.hit("k")
                assert (blocked.allowed, blocked.retry_after) == (False, round(600.0 - elapsed, 6)), algorithm
            assert limiter.hit("other"), algorithm
            clock.set(1e9 + 600.01)
            assert limiter.hit("k", 10), algorithm

    def test_a_block_ends_sooner_when_what_filled_the_limit_was_given_back(self) -> None:
        """A block lasts until the retry that a refusal promised; after a refund only its own time is left."""
        for algorithm in EVERY_ALGORITHM:
            limiter, clock = self._limiter(f"10/10s by {algorithm} block 1s", at=1e9)
            spent = limiter.hit("k", 10)
            assert limiter.hit("k", 10).retry_after > 1, algorithm
            limiter.refund(spent)
            start = clock.us
            assert limiter.hit("k").retry_after == 1, algorithm
            clock.us = start + 999_999
            refused = limiter.hit("k")
            assert (refused.allowed, refused.retry_us) == (False, 1), algorithm
            clock.us = start + 1_000_000
            assert limiter.hit("k").remaining == 9, algorithm

    def test_same_identity_same_budget(self) -> None:
        """Two limiters on one store share the limits of equal name, algorithm and period, and no others."""
        clock = ManualClock(1e9)
        store = self.store(clock)
        Limiter("10/minute", store=store, on_error="raise").hit("k", 4)
        Limiter("10/minute by sliding-log", store=store, on_error="raise").hit("k", 4)
        # A bucket's state is the time until it is full: 24 s, or 8 units at 20/minute. A log's state is its stamps.
        assert Limiter("20/minute", store=store, on_error="raise").peek("k", 0).remaining == 12
        assert Limiter("9/minute by sliding-log", store=store, on_error="raise").peek("k", 0).remaining == 5
        for other in ("10/hour", "10/minute by gcra", "10/minute as mine", "10/minute block 5m"):
            assert Limiter(other, store=store, on_error="raise").peek("k", 0).remaining == 10, other
        assert Limiter("10/minute", store=store, namespace="elsewhere", on_error="raise").peek("k", 0).remaining == 10

    def test_plans_change_numbers_only(self) -> None:
        """`limit=` applies other numbers to the same state; another algorithm or period is an error."""
        for algorithm, limiter, _ in self._every("100/minute"):
            for plan in (f"10/minute by {algorithm}", Limit(10, "minute", algorithm=algorithm)):
                assert limiter.peek("k", 0, limit=plan).limit == 10, algorithm
            assert limiter.hit("k", 8, limit=f"10/minute by {algorithm}"), algorithm
            assert not limiter.hit("k", 8, limit=f"10/minute by {algorithm}"), algorithm
            assert limiter.hit("k", 8), algorithm
            for plan in ("100/hour", "100/minute as other", "1/s; 1/m"):
                try:
                    limiter.hit("k", limit=plan)
                except InvalidLimit:
                    continue
                raise AssertionError(f"{algorithm} must refuse the plan {plan}")

    def test_any_unicode_is_a_key(self) -> None:
        """Keys that a store could confuse are different keys; a key that is not valid is an error."""
        limiter, _ = self._limiter("1/day", at=1e9)
        keys = [
            "a",
            "A",
            " a",
            "a ",
            "a\0",
            "\0",
            "{a}",
            "a:b",
            "é",
            "e\u0301",
            "\u0161",
            "a\x01",
            "\U0001f6a6",
            "\ud800",
        ]
        keys += ["\udfff", "*", "%s", "\n", "x" * 4096, "é" * 2048, "\U0001f6a6" * 1024]
        assert all(limiter.hit(key) for key in keys)
        assert not any(limiter.hit(key) for key in keys)
        for bad in ("", "x" * 4097, "é" * 2049, b"a", 1, None):
            try:
                limiter.hit(bad)  # type: ignore[arg-type]
            except InvalidCall:
                continue
            raise AssertionError(f"{bad!r} must not be a key")

    def test_clear_forgets_a_namespace(self) -> None:
        """`store.clear` resets every key of a namespace, and changes no other namespace."""
        clock = ManualClock(1e9)
        store = self.store(clock)
        mine, other = (
            Limiter("10/minute", store=store, namespace=name, on_error="raise") for name in ("mine", "other")
        )
        mine.hit("k", 4)
        other.hit("k", 4)
        store.clear("mine")
        assert (mine.peek("k", 0).remaining, other.peek("k", 0).remaining) == (10, 6)
