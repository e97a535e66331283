"""A network that is split: what two primaries let pass, and a primary that knows that it is alone."""

from __future__ import annotations

import pytest

from headgate import Limiter, StoreError
from tests.support.servers import Server

pytestmark = pytest.mark.engineless


def test_two_primaries_let_twice_the_limit_pass():
    """Each side of a split network counts alone, and admits the whole limit once more."""
    with Server() as old, Server() as new:
        sides = [Limiter("5/day by fixed-window", store=f"{each.url}?deadline=2") for each in (old, new)]
        assert sum(side.hit("ann").allowed for side in sides for _ in range(9)) == 10
        for side in sides:
            side.close()


def test_a_primary_without_its_replicas_does_not_decide():
    """With `min-replicas-to-write`, the side without replicas is answered by `on_error`, as if it were away."""
    with Server("--min-replicas-to-write", "1") as alone:
        denying, raising = (
            Limiter("5/day", store=f"{alone.url}?deadline=2", on_error=how) for how in ("deny", "raise")
        )
        decision = denying.hit("ann")
        assert (decision.allowed, decision.degraded, decision.retry_after) == (False, True, 1.0)
        with pytest.raises(StoreError, match="NOREPLICAS"):
            raising.hit("ann")
        alone.client().config_set("min-replicas-to-write", 0)
        assert raising.hit("ann").remaining == 4
        for limiter in (denying, raising):
            limiter.close()
