"""Load shedding: a flood of five times the capacity, with and without a shedder, in virtual time."""

from __future__ import annotations

from headgate.lab.overload import MAKERS, SCENARIOS, run
from tools.pictures.svg import Picture, Scale

SCENARIO, CAPACITY = "flood-5x", 400


def answered(estimator: str) -> list[int]:
    """Requests that are answered in time, in each second."""
    scenario = SCENARIOS[SCENARIO]
    (record,) = run(scenario, MAKERS[estimator](1), 1)
    return [record.good[second] for second in range(scenario.seconds)]


def picture() -> str:
    """Answers in time by second, with a shedder and without."""
    scenario = SCENARIOS[SCENARIO]
    drawn = Picture(760, 300, "A flood of five times the capacity: without a shedder nothing is answered in time")
    across, up = Scale((0, scenario.seconds), (56, 740)), Scale((0, 450), (250, 70))
    drawn.text(20, 28, "Answers in time, each second, in a flood of five times the capacity", "ink title")
    drawn.text(20, 50, "blue: with LoadShedder(), violet: without, dashed: the capacity, shaded: the flood", "soft")
    drawn.rect(across(20), 62, across(50) - across(20), 188, "used")
    for level in (0, 200, CAPACITY):
        drawn.line(56, up(level), 740, up(level), "most" if level == CAPACITY else "grid")
        drawn.text(48, up(level) + 4, str(level), "soft", "end")
    for second in range(0, scenario.seconds + 1, 10):
        drawn.text(across(second), 270, f"{second} s", "soft", "middle")
    for estimator, kind in (("none", "other"), ("adaptive", "edge")):
        drawn.path([(across(second + 0.5), up(count)) for second, count in enumerate(answered(estimator))], kind)
    return drawn.svg()
