"""What is said of a flow: its rate, how even it is, how late."""

from __future__ import annotations

import asyncio
from time import process_time

from bench.contestant import WorkloadError
from bench.measure import Figures
from bench.shapes import ASYNC_SHAPER, BARE_LOOP, RATE, Flow, in_loop, in_thread

BIN_US = 10_000
IN_A_BIN = RATE * BIN_US // 1_000_000


def shape(name: str, seconds: float) -> Figures:
    enough, cpu = round(RATE * seconds), process_time()
    threaded = name not in (ASYNC_SHAPER, BARE_LOOP)
    flow = in_thread(name, enough) if threaded else asyncio.run(in_loop(name, enough))
    return figures(name, flow) | {"cpu": process_time() - cpu}


def figures(name: str, flow: Flow) -> Figures:
    seconds = (flow.left[-1] - flow.left[0]) / 1e6
    rate = (len(flow.left) - 1) / seconds
    prove(name, flow)
    late = sorted(left - due for left, due in zip(flow.left, flow.due, strict=True))
    bins = counted(flow.left)
    return {
        "rate": rate,
        "off": 100 * abs(rate / RATE - 1),
        "early": sum(each < 0 for each in late),
        "late_p50": late[len(late) // 2],
        "late_p99": late[len(late) * 99 // 100],
        "late_most": late[-1],
        "bins": bins,
        "least": min(bins),
        "most": max(bins),
        "uneven": max(abs(each - IN_A_BIN) for each in bins),
    }


def prove(name: str, flow: Flow) -> None:
    """Items leave in the order in which they came, each once."""
    if flow.items != list(range(len(flow.items))):
        raise WorkloadError(f"{name}: items left in another order than they came in, or not at all")


def counted(left: list[int]) -> list[int]:
    """Departures in each whole 10 ms, from the first on."""
    whole = (left[-1] - left[0]) // BIN_US
    bins = [0] * whole
    for each in left:
        at = (each - left[0]) // BIN_US
        if at < whole:
            bins[at] += 1
    return bins
