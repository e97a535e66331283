"""What the tests of shared stores have in common: processes that start together, and storms."""

from __future__ import annotations

import json
import mmap
import random
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

from headgate import Limiter
from headgate.stores.shared import SharedStore
from headgate.testing import ManualClock
from tests.support import ROOT
from tests.support.servers import wait_until


def start(*arguments: str) -> subprocess.Popen[str]:
    """A worker process."""
    command = [sys.executable, "-m", "tests.support.workers", *arguments]
    root = ROOT
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=root)


def hammer(url: str, limits: str, processes: int, hits: int) -> list[dict[str, int]]:
    """Processes that each hit one key a number of times, all at once."""
    return hammer_each(url, [limits] * processes, hits)


def hammer_each(url: str, limits: list[str], hits: int) -> list[dict[str, int]]:
    """A process for each of the limits."""
    workers = [start("hammer", url, each, str(hits)) for each in limits]
    for worker in workers:
        assert worker.stdout is not None
        assert worker.stdout.readline() == "ready\n"
    for worker in workers:
        assert worker.stdin is not None
        worker.stdin.write("go\n")
        worker.stdin.flush()
    return [json.loads(worker.communicate()[0]) for worker in workers]


def storm(folder: Path, limits: str, amount: int, kills: int, seconds: float, seed: int) -> None:
    """Workers hammer one key while one after the other is killed and replaced; then the books are checked.

    A worker is killed at a random instant after its first admission, or its first refusal where all is admitted; the
    pauses between kills take about these seconds. Every kill may lose one admission that was charged and not yet
    written down, and may admit one too many.
    """
    chance = random.Random(seed)
    url, ledger = f"shared://{folder}/store?max_keys=6&max_bytes=67108864", folder / "ledger"
    ledger.write_bytes(bytes(8 * (kills + 5)))
    with ledger.open("r+b") as opened:
        counts = memoryview(mmap.mmap(opened.fileno(), 0)).cast("q")

    def hits(place: int) -> bool:
        return counts[place] > 0 or sum(counts) >= amount - kills

    workers = {place: start("storm", url, limits, str(ledger), str(place)) for place in range(4)}
    for number in range(kills):
        victim = chance.choice(list(workers))
        wait_until(partial(hits, victim), "the worker hits", 60)
        time.sleep(chance.uniform(0, 2 * seconds / kills))
        killed = workers.pop(victim)
        killed.kill()
        killed.communicate()
        workers[4 + number] = start("storm", url, limits, str(ledger), str(4 + number))
    counts[-1] = 1
    for worker in workers.values():
        worker.communicate(timeout=60)
        assert worker.returncode == 0
    limiter = Limiter(limits, store=url, on_error="raise")
    admitted = sum(counts[:-1])
    while limiter.hit("k"):
        admitted += 1
    assert amount - kills <= admitted <= amount + kills, (limits, seed, admitted)


def shared(path: Path, text: str = "10/minute", clock: ManualClock | None = None, **options) -> Limiter:
    return Limiter(text, store=SharedStore(str(path), max_keys=1_000, clock=clock), **options)


def table_file(path: Path) -> Path:
    (file,) = path.glob("*.table")
    return file


def words_of(file: Path) -> memoryview:
    """A table's memory, to do to it what a dying process would."""
    with file.open("r+b") as opened:
        return memoryview(mmap.mmap(opened.fileno(), 0)).cast("q")


def fuzz(folder: Path, rounds: int, seed: int) -> dict[str, int]:
    code = (Path(__file__).parent / "fuzz_shared.py").read_text()
    ran = subprocess.run(
        [sys.executable, "-c", code, str(folder / "fuzz"), str(rounds), str(seed)],
        capture_output=True,
        text=True,
        check=True,
    )
    return dict(json.loads(ran.stdout))
