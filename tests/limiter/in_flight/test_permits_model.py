"""Permits against a plain counter: whatever is done in whatever order, what remains is the limit less what is held."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from headgate.clock import MINUTE, SECOND, WEEK
from headgate.testing import ManualClock
from tests.support.flight import LONG, beside, flying
from tests.support.homes import EVERY_WAY, LATER, home_of
from tests.support.inside import renewal_of

LIMIT = 6
KEYS = ("a", "b")
keys = st.sampled_from(KEYS)
places = st.integers(0, 1)
costs = st.sampled_from((1, 1, 2, 2, 2, 3, LIMIT, 0, LIMIT + 1))
picks = st.integers(0, 10**6)


class Out:
    """A permit, as the model knows it."""

    def __init__(self, place: int, key: str, permit: Any, units: int, since: int, lease: int) -> None:
        self.place, self.key, self.permit, self.units = place, key, permit, units
        self.since, self.ends = since, since + lease
        self.free = False
        """Given back or reset: it counts no more."""


class Permits(RuleBasedStateMachine):
    """Two limiters of one home, each of them holding permits of two keys. Subclasses say which home."""

    kind = "memory"
    lease, lease_us = LONG, 100 * WEEK

    def __init__(self) -> None:
        super().__init__()
        self.stack = ExitStack()
        self.clock = ManualClock(LATER)
        make = self.stack.enter_context(flying(self.kind))
        text = f"{LIMIT} in flight ttl {self.lease}"
        one = make(text, clock=self.clock)
        # Memory is one store's; the other limiter of any other home has a store of its own, as another process has.
        other = beside(one, text) if self.kind.startswith("memory") else make(text, clock=self.clock)
        self.limiters = [one, other]
        self.outs: list[Out] = []

    def teardown(self) -> None:
        self.stack.close()

    def held(self, key: str) -> int:
        return sum(out.units for out in self.flying(key))

    def flying(self, key: str) -> list[Out]:
        return [out for out in self.outs if out.key == key and not out.free and out.ends > self.clock.us]

    def pick(self, number: int) -> Out:
        return self.outs[number % len(self.outs)]

    @rule(place=places, key=keys, cost=costs, verb=st.sampled_from(("permit", "hit", "acquire")))
    def take(self, place: int, key: str, cost: int, verb: str) -> None:
        limiter = self.limiters[place]
        room = LIMIT - self.held(key)
        taken = limiter.acquire(key, cost, 0) if verb == "acquire" else getattr(limiter, verb)(key, cost)
        decision = taken.decision if verb == "permit" else taken
        allowed = cost <= room
        assert (decision.allowed, decision.remaining) == (allowed, room - cost if allowed else room)
        assert (decision.never, decision.unknown) == (cost > LIMIT, not allowed and cost <= LIMIT)
        if allowed and cost:
            self.outs.append(Out(place, key, taken, cost, self.clock.us, self.lease_us))

    @rule(place=places, key=keys, most=st.integers(1, LIMIT + 2))
    def take_what_fits(self, place: int, key: str, most: int) -> None:
        room = LIMIT - self.held(key)
        decision = self.limiters[place].take_up_to(key, most)
        assert decision.granted == min(room, most)
        if decision:
            self.outs.append(Out(place, key, decision, decision.granted, self.clock.us, self.lease_us))

    @precondition(lambda self: self.outs)
    @rule(number=picks)
    def release(self, number: int) -> None:
        """In any order, and again."""
        out = self.pick(number)
        if hasattr(out.permit, "release"):
            out.permit.release()
        else:
            self.limiters[out.place].release(out.permit)
        self.end(out)

    @precondition(lambda self: self.outs)
    @rule(number=picks, units=st.integers(0, LIMIT))
    def give_back_part(self, number: int, units: int) -> None:
        out = self.pick(number)
        self.limiters[out.place].refund(getattr(out.permit, "decision", out.permit), units)
        if units < out.units:
            out.units -= units
        else:
            self.end(out)

    def end(self, out: Out) -> None:
        out.free = True
        out.units = 0
        self.clock.advance(0.000001)  # what is taken next has another mark

    @rule(place=places, key=keys)
    def reset(self, place: int, key: str) -> None:
        self.limiters[place].reset(key)
        for out in self.flying(key):
            out.free = True
        self.clock.advance(0.000001)

    @rule(seconds=st.sampled_from((0.000001, 0.5, 29.999999, 30.0, 86_400.0)))
    def let_time_pass(self, seconds: float) -> None:
        self.clock.advance(seconds)

    @rule(place=places, key=keys, cost=costs)
    def look(self, place: int, key: str, cost: int) -> None:
        room = LIMIT - self.held(key)
        seen = self.limiters[place].peek(key, cost)
        assert (seen.allowed, seen.remaining) == (cost <= room, room)

    @invariant()
    def what_remains_is_the_limit_less_what_is_held(self) -> None:
        for key in KEYS:
            for limiter in self.limiters:
                assert limiter.peek(key, 0).remaining == LIMIT - self.held(key)

    @invariant()
    def every_permit_is_listed(self) -> None:
        for key in KEYS:
            listed = self.limiters[0].holders(key)
            ages = [holding.age for holding in listed]
            assert ages == sorted(ages, reverse=True)
            mine = {0, 1} if self.kind.startswith("memory") else {0}
            assert sorted((holding.age, holding.units, holding.own) for holding in listed) == sorted(
                ((self.clock.us - out.since) / SECOND, out.units, out.place in mine) for out in self.flying(key)
            )


class Leases(Permits):
    """On a server leases end: here they are renewed by hand, in time, late, or by what was long on its way."""

    kind = "redis"
    lease, lease_us = "10m", 10 * MINUTE

    def __init__(self) -> None:
        super().__init__()
        self.keepers = [renewal_of(limiter.store) for limiter in self.limiters]
        self.on_the_way: list[tuple[Any, list[Any], list[Out]]] = []

    def of(self, place: int) -> list[Out]:
        """What this limiter believes to hold."""
        return [out for key in KEYS for out in self.flying(key) if out.place == place]

    def renewed(self, outs: list[Out]) -> None:
        for out in outs:
            if out in self.flying(out.key):
                out.ends = self.clock.us + self.lease_us

    @rule(place=places)
    def renew(self, place: int) -> None:
        """All at once; what was lost is not renewed again."""
        renewal = self.keepers[place]
        renewal.renew(list(renewal.held.values()))
        self.renewed(self.of(place))
        assert sorted(name.mark[0] for name in renewal.held) == sorted(out.since for out in self.of(place))

    @rule(place=places)
    def begin_to_renew(self, place: int) -> None:
        renewal = self.keepers[place]
        self.on_the_way.append((renewal, list(renewal.held.values()), self.of(place)))

    @precondition(lambda self: self.on_the_way)
    @rule(number=picks)
    def finish_renewing(self, number: int) -> None:
        """What has ended since stays so."""
        renewal, due, outs = self.on_the_way.pop(number % len(self.on_the_way))
        renewal.renew(due)
        self.renewed(outs)

    @precondition(lambda self: self.outs)
    @rule(number=picks, off=st.integers(-1, 1))
    def come_to_the_end_of_a_lease(self, number: int, off: int) -> None:
        self.clock.us = max(self.clock.us, self.pick(number).ends + off)


EXAMPLES = settings(max_examples=12, stateful_step_count=40)


@pytest.mark.parametrize("kind", EVERY_WAY)
def test_permits_are_what_a_counter_says(kind):
    """Random traces of permits leave the units that a plain counter says, on every home and in every way."""
    with home_of(kind.partition(" ")[0]):  # skips where there is none
        run_state_machine_as_test(type("Machine", (Permits,), {"kind": kind}), settings=EXAMPLES)


@pytest.mark.parametrize("kind", ["redis", "redis awaited"])
def test_leases_that_end_are_what_a_counter_says(kind):
    """Renewed late a permit is lost, released late it frees nothing, and nothing is counted twice."""
    with home_of("redis"):
        run_state_machine_as_test(type("Machine", (Leases,), {"kind": kind}), settings=EXAMPLES)
