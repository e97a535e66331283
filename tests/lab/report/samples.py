"""Results made by hand: small enough to check each figure, and with what strangers write into logs."""

from __future__ import annotations

from headgate import Limit
from headgate.clock import SECOND
from headgate.lab.comparison import Comparison, Measured, RefusedClient, Series, Waits, Wrong
from headgate.lab.logs import BadLine, Input, LogFacts
from headgate.lab.policies.results import Change, ChangedClient, PolicyEffect, PolicyReplay, RuleEffect
from headgate.lab.report import About

START = 1_456_000_020 * SECOND
"""2016-02-20 20:27:00 UTC."""
HOSTILE = "</script><img src=x onerror=alert(1)>"
TURNED = "\u202egnp.exe\u2069\u2028'\"&{{title}}"
LONG = "2001:db8:" * 40

ABOUT = About(
    f"headgate replay '{HOSTILE}{TURNED}.log' --limit 60/minute", 7, "2026-11-17 06:20:00 UTC",
    {"headgate": "0.1.0", "Python": "CPython 3.11.7", "engine": "native"},
)  # fmt: skip

LOG = LogFacts(
    inputs=(Input(f"{HOSTILE}.gz", "combined", "date", 12_345, "ab" * 32), Input("-", "combined", "date", 7, "")),
    lines=1_010, requests=1_000, unreadable=8,
    bad_lines=(BadLine("-", 4_711, "no time", f"{HOSTILE} GET /"),),
    late=2, out_of_order=3, spread=True, first=START, last=START + 239 * SECOND, missing=("user",),
)  # fmt: skip

LIMITS = (
    Measured(Limit(60, 60, algorithm="sliding-log"), 40, 2, 60, Wrong(0, 0), Wrong(0, 0), None, 520, 81),
    Measured(Limit(60, 60, algorithm="fixed-window"), 25, 1, 108, Wrong(12, 0), Wrong(20, 5), Wrong(30, 1), 24, 71),
    Measured(Limit(60, 60), 10, 1, 119, Wrong(30, 0), Wrong(31, 1), None, 16, 63, forgotten=3),
)
CLIENTS = (
    RefusedClient(HOSTILE, 300, 30, START + SECOND, START + 61 * SECOND, 300),
    RefusedClient(TURNED, 80, 9, START + 2 * SECOND, START + 62 * SECOND, 1),
    RefusedClient(LONG, 70, 1, START + 3 * SECOND, START + 3 * SECOND, 0),
)
SERIES = Series(
    START, 60 * SECOND, (100, 400, 300, 200), ((0, 30, 10, 0), (0, 20, 5, 0), (0, 10, 0, 0)),
    ((0, 0, 0, 0), (0, 48, 3, 0), (0, 59, 0, 0)),
)  # fmt: skip
COMPARISON = Comparison(LIMITS, 1_000, 20, START, START + 90 * SECOND, CLIENTS, SERIES, LOG, ("A remark & more.",))

QUEUE = Measured(
    Limit(10, 1, burst=50), 25, 3, 10, None, None, None, 16, 900, waits=Waits(0.0, 1.25, 4.9)
)  # fmt: skip
QUEUES = Comparison(
    (QUEUE,), 1_000, 20, START, START, (), Series(START, SECOND, (1_000,), ((25,),), ((0,),)), None
)  # fmt: skip
NOTHING = Comparison(LIMITS[:1], 0, 0, 0, 0, (), Series(0, SECOND, (), ((),), ((),)), None)

RULES = (
    RuleEffect("login", "5/minute by sliding-log", 200, 8, 0, 0, 0, 0.0, 2),
    RuleEffect("slow", "10/second queue 50", 300, 0, 4, 5, 6, 1.25, 3),
)
POLICY = PolicyReplay(
    1_000, 20,
    PolicyEffect(f"{HOSTILE}.yaml", RULES, 12, 4, {"tenant": "header x-tenant"}),
    PolicyEffect("old.yaml", RULES[:1], 8, 0, {"tenant": "header x-tenant"}, forgotten=1),
    Change(5, 2, (ChangedClient(HOSTILE, 300, 4, 150), ChangedClient(TURNED, 9, 1, 0))),
    Change(0, 0, ()),
    LOG,
    Series(0, 1_000_000, (600, 400), ((12, 0), (0, 8)), ((0, 0), (0, 0))),
)  # fmt: skip
EVERY = {"comparison": COMPARISON, "queues": QUEUES, "nothing": NOTHING, "policy": POLICY}
