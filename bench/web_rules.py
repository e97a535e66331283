"""Policies of few rules and of many: what one decision takes, and that it is the right one."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count as numbers
from itertools import repeat
from time import process_time_ns
from typing import Any

from bench.contestant import LARGE, OVER, SMALL, WorkloadError
from bench.measure import Figures
from bench.web_apps import words
from bench.web_calls import timed

FEW, MANY = 2, 200
PATHS, NEW_PATHS, CONDITIONS = "paths seen before", "paths never seen before", "headers, no paths"
LOOKS = (PATHS, NEW_PATHS, CONDITIONS)
HEADERS = {"host": ["api.example.com"], "x-service": ["service-0"], "accept": ["application/json"]}
"""As lines by name."""


def rules_named(count: int, look: str) -> str:
    return f"{count} rules by {look}"


def decide_by_rules(name: str, seconds: float, repeats: int) -> Figures:
    """Nanoseconds of processor time to make the view of a request and rule on it; two rules apply to each."""
    count, look = next((each, look) for each in (FEW, MANY) for look in LOOKS if name == rules_named(each, look))
    prove(count, look)
    compiled = compiled_of(count, look, LARGE)

    def check() -> None:
        outcome = ask(compiled, "/service-0/check")
        if outcome.kind != "pass" or len(outcome.group.limits) != 2:
            raise WorkloadError(f"{name}: {outcome.kind} over {len(outcome.group.limits)} limits")

    return timed(lambda times: spend(compiled, look, times), check, seconds, repeats)


def prove(count: int, look: str) -> None:
    compiled = compiled_of(count, look, SMALL)
    found = [ask(compiled, f"/service-0/{number}").kind for number in range(SMALL + OVER)]
    if found != ["pass"] * SMALL + ["deny"] * OVER:
        raise WorkloadError(f"{rules_named(count, look)}: of {SMALL + OVER} requests came {found}")


def compiled_of(count: int, look: str, amount: int) -> Any:
    from headgate import MemoryStore
    from headgate.policy import Policy
    from headgate.policy.compiled import CompiledPolicy

    def match(number: int) -> dict[str, Any]:
        return (
            {"header": {"x-service": f"service-{number}"}} if look == CONDITIONS else {"path": f"/service-{number}/**"}
        )

    each = [{"match": match(number), "key": "ip", "limits": words(amount)} for number in range(count - 1)]
    everywhere = {"name": "site", "key": "ip", "limits": words(2 * amount)}
    return CompiledPolicy(Policy({"rules": [*each, everywhere]}), {"": MemoryStore()}, awaited=False)


def ask(compiled: Any, path: str) -> Any:
    from headgate.policy import RequestView
    from headgate.steps import run

    return run(compiled.before(RequestView("GET", path, HEADERS, "203.0.113.9")))


_NUMBER = numbers()


def spend(compiled: Any, look: str, count: int) -> int:
    from headgate.policy import RequestView
    from headgate.steps import run

    before: Callable[[Any], Any] = compiled.before
    if look == NEW_PATHS:
        paths = [f"/service-0/{next(_NUMBER)}" for _ in repeat(None, count)]
    else:
        paths = ["/service-0/users"] * count
    start = process_time_ns()
    for path in paths:
        run(before(RequestView("GET", path, HEADERS, "203.0.113.9")))
    return process_time_ns() - start
