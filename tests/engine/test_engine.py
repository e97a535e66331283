"""The twins: which one runs, that the native one really does, and what only it can get wrong."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import sysconfig

import pytest

import headgate
from headgate import Limiter, MemoryStore
from headgate.engine import NATIVE, Decision
from headgate.engine.choice import wants_pure
from headgate.testing import ManualClock, ReferenceStore
from headgate.testing.suite import PLANS, SEVERAL, SINGLE
from headgate.testing.traces import compare

TELL = "import logging; logging.basicConfig(); from headgate.engine import NATIVE; print(NATIVE)"


def run(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, **environment}, capture_output=True, text=True, check=True
    )


def test_the_native_engine_is_the_one_that_runs():
    """Unless the pure one was asked for, or there was no compiler to build it with."""
    compiler = os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc"
    if not NATIVE and shutil.which(compiler.split()[0]) is None:
        pytest.skip("there is no C compiler here")
    assert wants_pure() != NATIVE
    assert Decision.__module__ == ("headgate.engine.native" if NATIVE else "headgate.decision")
    assert headgate.Decision is Decision is type(Limiter("1/s").hit("k"))


def test_the_native_hit_has_no_python_frame():
    """`Limiter.hit` is the engine's own bound method."""
    if not NATIVE:
        pytest.skip("the pure engine is Python")
    assert type(Limiter("1/s").hit).__name__ == "builtin_function_or_method"


@pytest.mark.parametrize(("value", "pure"), [("1", True), ("yes", True), ("0", False), ("", False), ("no", False)])
def test_headgate_pure_asks_for_the_pure_twin(value, pure):
    """`HEADGATE_PURE=1` is yes, `HEADGATE_PURE=0` is no; a program that asks for it is not warned."""
    ran = run(TELL, HEADGATE_PURE=value)
    built = importlib.util.find_spec("headgate.engine.native") is not None
    assert ran.stdout.strip() == str(built and not pure)
    assert (ran.stderr == "") == (built or pure)


def test_running_pure_without_asking_is_said_once():
    """No native engine and no HEADGATE_PURE: one log line says what that means and what to do."""
    hide = "import sys; sys.modules['headgate.engine.native'] = None; "
    ran = run(hide + TELL, HEADGATE_PURE="0")
    assert ran.stdout.strip() == "False"
    assert len(ran.stderr.splitlines()) == 1
    assert ran.stderr.startswith("WARNING:headgate:the native engine is not installed")
    assert "HEADGATE_PURE=1" in ran.stderr


needs_both = pytest.mark.skipif(not NATIVE, reason="the reference is the pure engine itself")


@needs_both
@pytest.mark.parametrize("text", [*SINGLE, *SEVERAL])
def test_the_twins_give_equal_answers(text):
    """Native and reference, driven through more traces than every store is, answer the same, bit for bit."""
    for seed in range(100, 104):
        compare(text, lambda clock: MemoryStore(clock=clock), seed, 300)


@needs_both
@pytest.mark.parametrize("plans", PLANS, ids=lambda plans: plans[0])
def test_the_twins_give_equal_answers_to_changing_plans(plans):
    """A state that one plan wrote is read alike in both by another, at promised instants and a microsecond beside."""
    for seed in range(100, 106):
        compare(plans[0], lambda clock: MemoryStore(clock=clock), seed, 300, plans[1:])


def test_strings_of_other_widths_with_equal_bytes_are_other_keys():
    """The buffers of "a\\x01" and "\\u0161" hold the same bytes; so do longer ones."""
    limiter = Limiter("1/day", clock=ManualClock(1e9))
    for times in (1, 4, 5, 100):
        narrow, wide = "a\x01" * times, "\u0161" * times
        assert narrow.encode("latin-1") == wide.encode("utf-16-le")
        assert limiter.hit(narrow)
        assert limiter.hit(wide)
        assert not limiter.hit(narrow)


def test_every_length_of_key_hashes_to_its_own_slot():
    """Keys that differ in one character anywhere, of every length around the hash's words, are different."""
    store = MemoryStore(clock=ManualClock(1e9))
    limiter = Limiter("1/day", store=store)
    keys = {"k" * n + "x" + "k" * (length - n - 1) for length in range(1, 40) for n in range(length)}
    assert all(limiter.hit(key) for key in keys)
    assert store.keys() == len(keys)


def test_a_subclass_of_str_is_a_str():
    """Enum members and other strings with a name are keys like their text."""

    class Named(str):
        __slots__ = ()

    limiter = Limiter("1/day", clock=ManualClock(1e9))
    assert limiter.hit(Named("k"))
    assert not limiter.hit("k")


@pytest.mark.parametrize(
    "text", ["10/minute", "10/minute block 5m", "7/second by gcra", "10/minute by sliding-window/6"]
)
def test_a_clock_may_jump_decades(text):
    """Packed times are counted from another epoch when the clock leaves the span they fit: answers stay exact."""
    clock = ManualClock()
    ours = Limiter(text, store=MemoryStore(clock=clock))
    theirs = Limiter(text, store=ReferenceStore(clock=clock))
    for years in (0, 56, 56, 70, 120, 121, 284):
        clock.set(years * 31_556_952.0 + 3)
        for cost in (3, 5, 4, 1, 11):
            mine, other = ours.hit("k", cost), theirs.hit("k", cost)
            assert mine.verdicts == other.verdicts, years
        refund, other = ours.hit("r", 4), theirs.hit("r", 4)
        ours.refund(refund)
        theirs.refund(other)
        assert ours.peek("r", 0).verdicts == theirs.peek("r", 0).verdicts


def test_a_clock_that_jumps_decades_back_does_not_freeze_a_key():
    """A charge of 2026 keeps a key in 1970 waiting for one unit, not for half a century."""
    clock = ManualClock(1_790_000_000)
    limiter = Limiter("10/minute", clock=clock)
    limiter.hit("k", 10)
    clock.set(100)
    assert limiter.hit("k").retry_after == 6.0
    assert limiter.hit("new", 10)


def test_growing_loses_nothing():
    """While a table grows from one set to thousands, no key loses its count."""
    store = MemoryStore(max_keys=30_000, clock=ManualClock(1e9))
    limiter = Limiter("3/hour by fixed-window as a; 3/hour as b", store=store)
    keys = range(20_000 if NATIVE else 5_000)
    for n in keys:
        assert limiter.hit(f"key:{n}", 2).granted == 2
    assert store.evictions() == 0
    assert not any(limiter.hit(f"key:{n}", 2) for n in keys)


def test_small_tables_lose_nothing_either():
    """A segment of a few sets that finds no place for a key while it grows grows further; it gives nobody up."""
    for _ in range(40 if NATIVE else 8):
        store = MemoryStore(clock=ManualClock(1e9))
        limiter = Limiter("1/365 days", store=store)
        assert all(limiter.hit(f"key:{n}") for n in range(1_500))
        assert (store.evictions(), store.keys()) == (0, 1_500)


def test_one_decision_may_move_what_it_charges():
    """New keys and keys seen before in one decision: when one makes the table grow, the others are charged too."""
    from headgate import Call

    limiter = Limiter("2/day", store=MemoryStore(clock=ManualClock(1e9)))
    for batch in range(60):
        seen, new = [f"{batch}:{n}" for n in range(32)], [f"{batch}:new:{n}" for n in range(32)]
        for key in seen:
            limiter.hit(key)
        assert limiter.decide(*(Call("2/day", key) for key in (*new, *seen)))
        assert not any(limiter.hit(key) for key in seen)


def test_one_decision_may_insert_several_keys_of_one_table():
    """Sixty-four new keys of one limit in one decision: places found for the later do not lose the earlier."""
    from headgate import Call

    store = MemoryStore(clock=ManualClock(1e9))
    limiter = Limiter("1/day", store=store)
    for batch in range(50):
        keys = [f"{batch}:{n}" for n in range(64)]
        assert limiter.decide(*(Call("1/day", key) for key in keys))
        assert not any(limiter.hit(key) for key in keys)
