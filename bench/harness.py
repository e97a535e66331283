"""Runs jobs, each in a process of its own, round by round, and says how far it is."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TextIO

from bench.jobs import Job, Results, Scale

ROOT = Path(__file__).parent.parent
BAR = 30


class Progress:
    """A bar on a terminal, a line for each job elsewhere."""

    def __init__(self, total: int, stream: TextIO = sys.stderr) -> None:
        self.total, self.done, self.stream = total, 0, stream
        self.is_terminal = stream.isatty()

    def begin(self, job: Job) -> None:
        if self.is_terminal:
            filled = BAR * self.done // self.total
            bar = "#" * filled + "-" * (BAR - filled)
            self._write(f"\r\x1b[K[{bar}] {self.done}/{self.total} {job}")

    def end(self, job: Job) -> None:
        self.done += 1
        if not self.is_terminal:
            self._write(f"{self.done}/{self.total} {job}\n")
        elif self.done == self.total:
            self._write("\r\x1b[K")

    def _write(self, text: str) -> None:
        self.stream.write(text)
        self.stream.flush()


def run_all(jobs: list[Job], scale: Scale) -> Results:
    """Every job once in each round: what slows the machine down for a while slows all of them."""
    plan = [job for number in range(scale.rounds) for job in jobs if number == 0 or not job.once]
    results, progress = Results(), Progress(len(plan))
    for job in plan:
        progress.begin(job)
        results.add(job, run_one(job, scale))
        progress.end(job)
    return results


def run_one(job: Job, scale: Scale) -> dict[str, object]:
    given = json.dumps({"job": job._asdict(), "scale": scale._asdict()})
    done = subprocess.run(
        [sys.executable, "-m", "bench.worker", given], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False
    )
    if done.returncode:
        return {"failed": f"{job}: its process ended with {done.returncode}"}
    return json.loads(done.stdout)
