"""Long storms over shared memory; SOAK_SECONDS=120 is the whole of it, less is a part."""

from __future__ import annotations

import pytest

from headgate.engine import NATIVE
from tests.stores.test_shared import LIMITS
from tests.stores.test_shared_instants import CASES, can_trace, kill_at_instructions
from tests.support import sharing, soaking
from tests.support.sharing import fuzz

pytestmark = [pytest.mark.soak, pytest.mark.skipif(not NATIVE, reason="shared stores need the native engine")]

PART = min(1.0, soaking.SECONDS / 120)


@pytest.mark.parametrize("text", LIMITS)
def test_eight_processes_admit_exactly_the_limit(tmp_path, text):
    """8 processes, 50,000 hits each on one key, a limit of 100,000 in 4 weeks: exactly that many."""
    hits = int(50_000 * max(PART, 0.1))
    done = sharing.hammer(f"shared://{tmp_path}/store?max_keys=100", text.format(2 * hits), processes=8, hits=hits)
    assert sum(each["admitted"] for each in done) == 2 * hits


def test_more_busy_processes_than_cores_answer_together(tmp_path):
    """32 processes lose their cores all the time, also while they hold a lock: none answers apart from the others."""
    hits = int(2_000_000 * max(PART, 0.1))
    url, text = f"shared://{tmp_path}/store?max_keys=100", f"{16 * hits}/4 weeks by sliding-window"
    done = sharing.hammer(url, text, processes=32, hits=hits)
    assert [sum(each[name] for each in done) for name in ("admitted", "degraded")] == [16 * hits, 0]


def test_two_hundred_kills(tmp_path):
    """20 runs of 10 kills each, every kind of limit in turn."""
    for run in range(max(2, int(20 * PART))):
        folder = tmp_path / str(run)
        folder.mkdir()
        seed = soaking.fresh_seed()
        sharing.storm(folder, LIMITS[run % len(LIMITS)].format(400_000), 400_000, kills=10, seconds=2.0, seed=seed)


@pytest.mark.skipif(not can_trace(), reason="processes cannot be traced here")
@pytest.mark.parametrize("case", CASES)
def test_kills_at_every_instruction(tmp_path, case):
    """As many instants of a decision as there is time for."""
    kill_at_instructions(tmp_path / "store", *CASES[case], instants=max(10, int(200 * PART)))


def test_ten_thousand_damaged_files(tmp_path):
    """Each mutation of a file gives an error or an answer, and never ends the process."""
    rounds = int(10_000 * max(PART, 0.05))
    assert fuzz(tmp_path, rounds, seed=soaking.fresh_seed())["rounds"] == rounds
