"""Runs of the benchmark are compared by their ratios."""

from __future__ import annotations

import json

import pytest

pytestmark = pytest.mark.engineless
comparison = pytest.importorskip("bench.compare", reason="the benchmark is in the source tree")
MACHINE = {"headgate": "0.2", "python": "CPython 3.13", "cpu": "a CPU, 2 cores", "load": "0.10 before the run"}


def saved(path, *targets):
    """A run with these targets: claim, figure, unit, and whether more is better."""
    rows = [
        {"claim": claim, "measured": figure, "unit": unit, "at_least": more} for claim, figure, unit, more in targets
    ]
    path.write_text(json.dumps({"machine": MACHINE, "targets": rows}), encoding="utf-8")
    return path


def test_ratios_of_two_runs_are_compared_in_the_direction_of_their_targets(tmp_path):
    """More is better for one ratio and worse for another; small changes, other units and missing figures are told."""
    before = saved(
        tmp_path / "before.json",
        ("a hit against an empty method", 2.0, "x", False),
        ("throughput of a bare app", 0.5, "x", True),
        ("steady", 1.0, "x", False),
        ("bytes of a key", 21, "bytes", False),
        ("left out now", 3.0, "x", False),
    )
    after = saved(
        tmp_path / "after.json",
        ("a hit against an empty method", 3.0, "x", False),
        ("throughput of a bare app", 1.0, "x", True),
        ("steady", 1.05, "x", False),
        ("bytes of a key", 42, "bytes", False),
        ("measured first now", 4.0, "x", False),
        ("not measured", None, "x", False),
    )
    assert comparison.compare(before, after).splitlines()[4:] == [
        "| ratio | before | after | change |",
        "|---|---|---|---|",
        "| a hit against an empty method | 2.00x | 3.00x | 1.50x worse |",
        "| throughput of a bare app | 0.50x | 1.00x | 2.00x better |",
        "| steady | 1.00x | 1.05x | same |",
        "| measured first now | - | 4.00x | new |",
        "| not measured | - | - | - |",
        "| left out now | 3.00x | - | gone |",
    ]
