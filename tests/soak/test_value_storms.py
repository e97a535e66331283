"""Requests that say a thing in any form, to every framework, for as long as SOAK_SECONDS says."""

from __future__ import annotations

import time

import pytest

from tests.support import soaking
from tests.support.forms import FORMS, passed_the_lists, served_twice
from tests.support.frameworks import READERS, SLOW

pytestmark = pytest.mark.soak

SECONDS = soaking.SECONDS / (len(READERS) + len(SLOW))


@pytest.mark.parametrize("reader", READERS)
def test_what_is_counted_is_what_the_app_sees(reader):
    """Fresh seeds every time; a failure names its seed and the requests."""
    end = time.monotonic() + SECONDS
    seed = soaking.fresh_seed()
    while time.monotonic() < end:
        for source in FORMS:
            assert (seed, served_twice(reader, source, seed, 200)) == (seed, [])
            assert (seed, passed_the_lists(reader, source, seed, 50)) == (seed, [])
        seed += 1


@pytest.mark.parametrize("reader", SLOW)
def test_what_is_counted_is_what_the_app_sees_behind_a_server(reader):
    """The same with a server's own way of reading requests."""
    end = time.monotonic() + SECONDS
    seed = soaking.fresh_seed()
    while time.monotonic() < end:
        for source in FORMS:
            assert (seed, served_twice(reader, source, seed, 500)) == (seed, [])
        seed += 1
