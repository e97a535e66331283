"""Overloads by requests that are not equal: classes, and tenants."""

from __future__ import annotations

from headgate.lab.overload.scenarios import Scenario, Stream

CRITICAL = Scenario(
    "critical",
    "5 times, of which critical requests are half of the peak",
    load=((20, 280), (30, 2000), (20, 280)),
    measured=((30, 50, 400),),
    streams=(Stream(0.1, "critical"), Stream(0.9, "sheddable")),
    wait=1.0,
)
GREEDY = Scenario(
    "greedy",
    "ten tenants, each with as much as the peak",
    load=((20, 280), (30, 4000)),
    measured=((30, 50, 400),),
    streams=tuple(Stream(0.1, tenant=f"greedy-{number}") for number in range(10)),
    wait=1.0,
)
NOISY = Scenario(
    "noisy",
    "one tenant with 5 times the peak, nine with half of it together",
    load=((20, 200), (30, 2200)),
    measured=((30, 50, 400),),
    streams=(Stream(10 / 11, tenant="noisy"), *(Stream(1 / 99, tenant=f"quiet-{number}") for number in range(9))),
    wait=1.0,
)
