"""The lab: CPU time of each line of a log, memory, and the size of a report."""

from __future__ import annotations

import io
import re
import resource
import tempfile
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from random import Random
from time import process_time

from bench.contestant import WorkloadError
from bench.measure import Figures

CLIENTS = 10_000
A_SECOND = 14
"""Requests of all clients: the busiest one then sends about 60 a minute, and one request in a hundred is refused, as in
real logs (an Apache log of a month: 0.85 %)."""
FLOODED_A_SECOND = 50
"""The five busiest clients send more than they may, day and night, and one request in ten is refused."""
BARE = "read and match each line"
REPLAY = "replay, five algorithms"
FLOODED = "replay, five algorithms, 10 % refused"
POLICY = "replay, a policy of 20 rules"
ADVISE = "advise, nine rates"
RULES = 20
MATCH = re.compile(r'(\S+) \S+ \S+ \[([^\]]+)\] "[^"]*" (\d+)')


def lines(count: int, a_second: int = A_SECOND) -> Iterator[str]:
    """Combined lines of clients of which a few send most, at a steady rate of all."""
    chance = Random(7)
    for number in range(count):
        rank = int(CLIENTS ** chance.random()) - 1
        second = number // a_second
        minute, hour, day = second // 60 % 60, second // 3600 % 24, second // 86400 + 1
        yield (
            f"10.0.{rank >> 8}.{rank & 255} - - [{day:02}/May/2024:{hour:02}:{minute:02}:{second % 60:02} +0000] "
            f'"GET /items/{number % 997} HTTP/1.1" {404 if number % 50 == 0 else 200} 512 "-" "agent/1.0"\n'
        )


def bare(path: Path) -> int:
    seen = 0
    with path.open(encoding="latin-1") as file:
        for line in file:
            if MATCH.match(line):
                seen += 1
    return seen


def replayed(path: Path) -> int:
    from headgate.lab import Log, replay

    result = replay(Log([path], wanted={"status"}), "60/minute")
    if not result.limits[0].refused:
        raise WorkloadError("the log has no client above the limit")
    return result.requests


def by_policy(path: Path) -> int:
    from headgate.lab import Log, replay_policy

    rules = [
        f"  - {{name: r{n}, match: {{path: '/items/{n}*'}}, key: ip, limits: {60 + n}/minute}}" for n in range(RULES)
    ]
    file = path.with_suffix(".yaml")
    file.write_text("\n".join(["rules:", *rules]))
    return replay_policy(Log([path]), file).requests


def advised(path: Path) -> int:
    from headgate.lab import Log, burst_curve

    log = Log([path], wanted={"status"})
    burst_curve(log)
    return log.facts.requests


RUNS: dict[str, Callable[[Path], int]] = {
    BARE: bare,
    REPLAY: replayed,
    FLOODED: replayed,
    POLICY: by_policy,
    ADVISE: advised,
}


def measure_lab(name: str, count: int) -> Figures:
    """Microseconds of CPU a line, and the most memory of the process beyond what it had before."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "access.log")
        with path.open("w") as file:
            file.writelines(lines(count, FLOODED_A_SECOND if name == FLOODED else A_SECOND))
        RUNS[name](_head(path))  # imports, and bytecode
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        begin = process_time()
        seen = RUNS[name](path)
        taken = process_time() - begin
        if seen != count:
            raise WorkloadError(f"{name}: {seen} of {count} lines")
        more = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
        return {
            "call": name,
            "us": taken * 1e6 / count,
            "mb": more / 1024,
            "kb": _report_size() if name == REPLAY else 0,
        }


def _head(path: Path) -> Path:
    head = path.with_name("head.log")
    with path.open() as file:
        head.write_text("".join(islice(file, 20_000)))
    return head


def _report_size() -> float:
    from headgate.lab import About, Log, html, replay, versions

    log = Log([io.BytesIO("".join(lines(50_000)).encode())])
    return len(html(replay(log, "60/minute"), About("headgate replay", None, "now", versions()))) / 1024
