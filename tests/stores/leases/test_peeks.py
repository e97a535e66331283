"""Leases and peeks: the numbers of a peek are those that hits from this process would get."""

from __future__ import annotations

import pytest

from headgate import Lease
from tests.support.inside import bound_of
from tests.support.inside_leases import peek_steps
from tests.support.leasing import EVERY_KIND, MOST, WINDOW, drain, held, open_bank, warm


def test_peeking_writes_nothing_and_says_what_a_hit_would(bank):
    """Peeks of any cost leave the charge as it is, and tell what is there now."""
    limiter = bank.limiter(WINDOW)
    warm(limiter)
    charged = bank.charged(WINDOW)
    for cost in (1, 5, 1, 0, 900):
        seen, again = limiter.peek("k", cost), limiter.peek("k", cost)
        assert (seen.allowed, seen.remaining, seen.reset_us) == (True, again.remaining, again.reset_us)
        limiter.refund(seen)
    assert limiter.peek("k").remaining == MOST - 50
    assert bank.charged(WINDOW) == charged
    assert limiter.hit("k").remaining == MOST - 51
    limiter.close()
    assert bank.charged(WINDOW) == 51
    assert not limiter.peek("k", MOST).allowed


@EVERY_KIND
@pytest.mark.parametrize("hits", [24, 25, 50, 106])
def test_a_peek_counts_what_this_process_holds(bank, limit, hits):
    """The remaining units are those that hits from here would get: of the lease, of the one that was bought ahead,
    and of the server."""
    limiter = bank.limiter(limit)
    warm(limiter, hits=hits)
    bank.until(lambda: bank.charged(limit) > hits, "what was bought ahead has come")
    assert [limiter.peek("k", cost).remaining for cost in (0, 1, 7)] == [MOST - hits] * 3
    assert drain(limiter) == MOST - hits
    assert limiter.peek("k", 0).remaining == 0
    assert not limiter.peek("k").allowed


@EVERY_KIND
def test_a_peek_knows_what_others_took_since_the_lease_was_bought(bank, limit):
    """The remainder is the server's of now and what is held here."""
    limiter = bank.limiter(limit)
    warm(limiter)
    bank.plain(limit).hit("k", 1000)
    assert limiter.peek("k").remaining == MOST - 1050
    assert drain(limiter) == MOST - 1050


def test_a_peek_does_not_count_permits_that_are_void(bank):
    """Tokens are counted to the last microsecond of their validity, and not at it."""
    limiter = bank.limiter(WINDOW, lease=Lease(validity=2))
    warm(limiter)
    bank.clock.us += 1_999_999  # not told: nothing is given back yet
    assert limiter.peek("k", 0).remaining == MOST - 50
    bank.clock.us += 1
    assert limiter.peek("k", 0).remaining == MOST - bank.charged(WINDOW) < MOST - 50


def test_a_peek_of_a_plan_counts_what_such_a_hit_may_spend(bank):
    """A plan is asked for at the server, so the lease does not serve it."""
    limit = f"{WINDOW} as api"
    limiter = bank.limiter(limit)
    warm(limiter)
    left = MOST - bank.charged(limit)
    assert limiter.peek("k", limit=f"{2 * MOST}/hour by fixed-window as api").remaining == MOST + left


def test_a_peek_does_not_count_twice_what_is_bought_while_it_asks(server):
    """A purchase during the question is not added to an answer from before it."""
    with open_bank(server) as bank:
        limiter = bank.limiter(WINDOW)
        warm(limiter)
        left, gate = MOST - bank.charged(WINDOW), bound_of(limiter)
        steps = peek_steps(gate, "k", 0)
        reply = gate.space.topology.exchange(next(steps))
        warm(limiter, hits=500)
        with pytest.raises(StopIteration) as done:
            steps.send((reply, 0))
        assert held(limiter) > 0
        assert done.value.value.remaining == left  # what was held then is spent


@pytest.mark.parametrize("on_error", ["local", "deny"])
def test_a_peek_while_the_server_is_away_counts_what_is_held(server, proxy, on_error):
    """Beside it, what this process may admit alone."""
    with open_bank(server, url=proxy.url) as bank:
        limiter = bank.limiter(WINDOW, on_error=on_error)
        warm(limiter)
        held = bank.charged(WINDOW) - 50
        proxy.refuse()
        proxy.reset()
        alone = MOST if on_error == "local" else 0
        seen = limiter.peek("k", 3)
        assert (seen.allowed, seen.remaining, seen.retry_after, seen.degraded) == (True, alone + held, 0.0, True)
        assert limiter.peek("k", MOST).allowed == (on_error == "local")
        proxy.accept()


def test_a_peek_of_a_cost_that_no_lease_covers_is_what_the_server_says_of_it(bank):
    """A cost beyond the lease is allowed or refused as a hit of it would be."""
    limiter = bank.limiter(WINDOW)
    warm(limiter)
    held = bank.charged(WINDOW) - 50
    assert 10 < held < 900
    assert limiter.peek("k", 900).remaining == MOST - 50
    refused = limiter.peek("k", MOST - 50)
    assert (refused.allowed, refused.remaining, refused.retry_after) == (False, MOST - 50, 800.0)
    assert limiter.hit("k", 900).allowed
