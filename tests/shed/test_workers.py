"""The worker shedder: a ledger of Stripe's rule, and its signals."""

from __future__ import annotations

import pytest

from headgate import InvalidCall
from headgate.clock import SECOND
from headgate.shed.classes import Classes
from headgate.shed.signals import Signals
from headgate.shed.workers import Amount, Workers, pressure

pytestmark = pytest.mark.engineless


@pytest.mark.parametrize(
    ("use", "expected"), [(0, -1), (0.35, -0.5), (0.7, 0), (0.8, 0), (0.9, 0.5), (1, 1), (1.5, 1), (-1, -1)]
)
def test_pressure(use, expected):
    """Below 0.7 there is room, from 0.8 on there is none, in between nothing changes."""
    assert pressure(use) == pytest.approx(expected)


def test_full_use_sheds_after_28_seconds_and_all_of_a_class_120_seconds_later():
    """Each second at full use adds 1/120; the amount starts 28 s below nothing, and stops at both sheddable classes."""
    amount = Amount(2)
    ledger = {}
    for second in range(301):
        amount.follow(second * SECOND, 1.0)
        ledger[second] = round(amount.value, 6)
    assert ledger[0] == -round(28 / 120, 6)
    assert [ledger[28], ledger[29], ledger[88]] == [0, round(1 / 120, 6), 0.5]
    assert [ledger[148], ledger[208], ledger[268], ledger[300]] == [1, 1.5, 2, 2]


def test_an_idle_service_restores_over_minutes():
    """From all of one class, half use restores in 7 minutes what 2 of full use took; no use in 2."""
    amount = Amount(1)
    for second in range(200):
        amount.follow(second * SECOND, 1.0)
    assert amount.value == 1
    for second in range(200, 321):
        amount.follow(second * SECOND, 0.0)
    assert round(amount.value, 6) == round(1 - 121 / 120, 6)


def test_a_long_silence_counts_as_28_seconds():
    """A process that had no request for an hour does not shed or restore for an hour at once."""
    amount = Amount(2)
    amount.follow(0, 1.0)
    amount.follow(3_600 * SECOND, 1.0)
    assert round(amount.value, 6) == 0


def test_classes_are_shed_one_after_the_other(monkeypatch):
    """An amount of 1.5 sheds the lowest class wholly and half of the next; chance decides which half."""
    workers = Workers(["busy"], Classes())
    for second in range(209):
        workers.look(second * SECOND, 0, 1.0)
    shed = {}
    for chance in (0.0, 0.49, 0.51, 0.99):
        monkeypatch.setattr("headgate.shed.workers.random", lambda chance=chance: chance)
        shed[chance] = workers.sheds(0), workers.sheds(1)
    assert shed == {0.0: (True, True), 0.49: (True, True), 0.51: (True, False), 0.99: (True, False)}


def test_the_busiest_signal_counts():
    """Signals are between 0 and 1; times are parts of 100 ms; a function is a signal too."""
    signals = Signals(["busy", "loop_lag", "queue", lambda: 0.3])
    assert signals.read(0.1, 0, 0) == 0.3
    assert signals.read(0.9, 0, 0) == 0.9
    assert signals.read(0.1, 50_000, 0) == 0.5
    assert signals.read(0.1, 0, 900_000) == 1.0
    assert Signals([lambda: -5.0]).read(1.0, 0, 0) == 0.0


def test_a_signal_that_fails_counts_as_none(caplog):
    """A function that raises, or returns no number, fails no request; the log tells it once, until it works again."""
    answers = iter([LookupError("no gauge"), "high", 0.4, LookupError("again")])

    def gauge():
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    signals = Signals(["busy", gauge])
    assert [signals.read(0.1, 0, 0) for _ in range(4)] == [0.1, 0.1, 0.4, 0.1]
    assert [record.exc_info[1].args for record in caplog.records] == [("no gauge",), ("again",)]
    assert "gauge" in caplog.records[0].getMessage()


def test_a_signal_that_is_no_number_is_told(caplog):
    """A gauge that answers nan has measured nothing: workers that count as idle for it are in the log."""
    signals = Signals([lambda: float("nan")])
    assert [signals.read(1.0, 0, 0) for _ in range(2)] == [0.0, 0.0]
    assert [str(record.exc_info[1]) for record in caplog.records] == ["expected a number from 0 to 1; got nan"]


def test_cpu_is_a_part_of_one_core(monkeypatch):
    """Half a second of processor time within a second is 0.5."""
    times = iter([0, 1_000_000_000])
    used = iter([0, 500_000_000])
    monkeypatch.setattr("headgate.shed.signals.time.perf_counter_ns", lambda: next(times))
    monkeypatch.setattr("headgate.shed.signals.time.process_time_ns", lambda: next(used))
    assert Signals(["cpu"]).read(0.0, 0, 0) == 0.5


@pytest.mark.parametrize("signals", ["busy", [], ["bussy"], [3]])
def test_unknown_signals_are_refused(signals):
    """Signals are a list of known names or functions."""
    with pytest.raises(InvalidCall, match="signal"):
        Signals(signals)
