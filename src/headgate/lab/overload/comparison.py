"""The table of an overload laboratory: every scenario with every estimator, over several seeds."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from random import Random
from statistics import median

from headgate.lab.overload.known import KNOWN
from headgate.lab.overload.result import NEVER, Result, measure, run
from headgate.lab.overload.scenarios import Scenario
from headgate.lab.overload.unseen import UNSEEN
from headgate.shed.estimators import AIMD, Adaptive, Estimator, Fixed, Gradient2, Vegas

UNLIMITED = 10**9
MAKERS: dict[str, Callable[[int], Estimator]] = {
    "none": lambda seed: Fixed(UNLIMITED),
    "aimd": lambda seed: AIMD(),
    "vegas": lambda seed: Vegas(random=Random(seed)),  # noqa: S311 - repeatable chance
    "gradient2": lambda seed: Gradient2(),
    "adaptive": lambda seed: Adaptive(),
}
SCENARIOS: dict[str, Scenario] = {scenario.name: scenario for scenario in (*KNOWN, *UNSEEN)}


def trial(scenario: str, estimator: str, seed: int) -> Result:
    """Run one scenario once."""
    chosen = SCENARIOS[scenario]
    return measure(chosen, run(chosen, MAKERS[estimator](seed), seed))


def middle(results: Sequence[Result]) -> Result:
    """Return the median of each number."""
    return Result(
        median(result.goodput for result in results),
        median(result.slowdown for result in results),
        median(result.recovery for result in results),
    )


def trials(scenarios: Sequence[str], estimators: Sequence[str], seeds: int) -> Iterator[tuple[str, str, Result]]:
    """Run every scenario with every estimator, on all cores; yield the medians in order."""
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        running = {
            (scenario, estimator): [pool.submit(trial, scenario, estimator, seed) for seed in range(seeds)]
            for scenario in scenarios
            for estimator in estimators
        }
        for (scenario, estimator), each in running.items():
            yield scenario, estimator, middle([future.result() for future in each])


def cell(result: Result) -> str:
    """Write goodput, slowdown and recovery."""
    recovery = "never" if result.recovery >= NEVER else f"{result.recovery:.0f} s"
    slowdown = f"{result.slowdown:.1f}x" if result.slowdown < 100 else ">99x"
    return f"{result.goodput:4.2f} {slowdown:>5} {recovery:>5}{' *' if result.held else '  '}"


def table(results: dict[tuple[str, str], Result]) -> str:
    """Write the results: a line for each scenario, a column for each estimator."""
    scenarios = list(dict.fromkeys(scenario for scenario, _ in results))
    estimators = list(dict.fromkeys(estimator for _, estimator in results))
    lines = [f"{'':16}" + "".join(f"{estimator:>21}" for estimator in estimators)]
    lines += [
        f"{scenario:16}" + "".join(f"{cell(results[scenario, estimator]):>21}" for estimator in estimators)
        for scenario in scenarios
    ]
    held = [sum(results[scenario, estimator].held for scenario in scenarios) for estimator in estimators]
    lines.append(f"{f'held of {len(scenarios)}':16}" + "".join(f"{count:>19}  " for count in held))
    return "\n".join(lines)
