"""The credit of a key: units that were reserved and not used pay for the next calls."""

from __future__ import annotations

import os

import pytest

from headgate.client.credit import LASTS, Credit
from tests.support import side_by_side

pytestmark = pytest.mark.engineless


def test_unused_units_pay_for_the_next_call():
    """A call is paid as far as the credit goes; what is left is there for the call after it."""
    credit = Credit()
    credit.keep({"tokens": 300}, 0)
    assert credit.spend({"requests": 1, "tokens": 201}, 0) == {"tokens": 200}
    assert credit.spend({"requests": 1, "tokens": 201}, 0) == {"tokens": 100}
    assert credit.spend({"requests": 1, "tokens": 201}, 0) == {}


def test_a_call_is_charged_at_least_one_unit():
    """However large the credit is: a call that is charged nothing would not wait for the pace of its limit."""
    credit = Credit()
    credit.keep({"tokens": 10_000, "requests": 7}, 0)
    assert credit.spend({"requests": 1, "tokens": 50}, 0) == {"tokens": 49}
    assert credit.spend({"tokens": 0}, 0) == {}


def test_units_are_kept_by_their_names():
    """Units of a limit that a call does not count against stay."""
    credit = Credit()
    credit.keep({"input_tokens": 5, "output_tokens": 9}, 0)
    assert credit.spend({"output_tokens": 4}, 0) == {"output_tokens": 3}
    credit.keep({"output_tokens": 3}, 0)
    assert credit.spend({"input_tokens": 10, "output_tokens": 10}, 0) == {"input_tokens": 5, "output_tokens": 9}


def test_credit_that_no_call_takes_is_lost():
    """The limit has been idle for so long that it has forgotten the charge; new units do not revive the old ones."""
    credit = Credit()
    credit.keep({"tokens": 100}, 0)
    assert credit.spend({"tokens": 11}, LASTS) == {"tokens": 10}
    assert credit.spend({"tokens": 11}, LASTS + 1) == {}
    credit.keep({"tokens": 100}, 0)
    credit.keep({"tokens": 5}, LASTS + 1)
    assert credit.spend({"tokens": 100}, LASTS + 1) == {"tokens": 5}


def test_keeping_nothing_does_not_make_the_credit_younger():
    """A call that was paid nothing and has to wait gives nothing back."""
    credit = Credit()
    credit.keep({"tokens": 100}, 0)
    credit.keep({}, LASTS)
    assert credit.spend({"tokens": 11}, LASTS + 1) == {}


def test_threads_spend_each_unit_once():
    """Eight threads take from one credit until it is used up; together they take as much as was kept."""
    credit = Credit()
    credit.keep({"tokens": 8_000}, 0)

    spent: list[int] = []

    def spend() -> None:
        spent.extend(credit.spend({"tokens": 4}, 0).get("tokens", 0) for _ in range(1_000))

    with side_by_side([spend] * 8):
        pass
    assert (len(spent), sum(spent)) == (8_000, 8_000)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_has_no_credit():
    """The parent spends it; both would spend it twice."""
    credit = Credit()
    credit.keep({"tokens": 100}, 0)
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writing, repr(dict(credit.spend({"tokens": 50}, 0))).encode())
        os._exit(0)
    os.waitpid(child, 0)
    assert os.read(reading, 100) == b"{}"
    assert credit.spend({"tokens": 50}, 0) == {"tokens": 49}
    os.close(reading)
    os.close(writing)
