"""One job in a process of its own: a line of JSON in, a line of JSON out."""

from __future__ import annotations

import asyncio
import json
import sys

from bench import ours, rivals
from bench.contestant import WorkloadError
from bench.jobs import Job, Scale
from bench.measure import Bench, Figures, grow, spread, stalls, time_calls


def run(job: Job, scale: Scale) -> Figures:
    contestant = {each.name: each for each in (*ours.contestants(), *rivals.contestants())}[job.contestant]
    with asyncio.Runner() as runner:
        try:
            bench = Bench(contestant, runner)
            bench.prove()
            return {"call": contestant.call, **measure(job, bench, scale)}
        except ImportError as reason:
            return {"missing": str(reason)}
        except WorkloadError as reason:
            return {"failed": str(reason)}


def measure(job: Job, bench: Bench, scale: Scale) -> Figures:
    if job.kind == "time":
        return time_calls(bench, scale.seconds, scale.repeats)
    if job.kind == "grow":
        return grow(bench, job.keys)
    if job.kind == "stalls":
        return stalls(bench, job.keys)
    return spread(bench, job.keys, scale.repeats)


if __name__ == "__main__":
    given = json.loads(sys.argv[1])
    print(json.dumps(run(Job(**given["job"]), Scale(**given["scale"]))))
