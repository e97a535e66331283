"""One job in a process of its own: a line of JSON in, a line of JSON out."""

from __future__ import annotations

import asyncio
import json
import sys

from bench import (
    client_virtual,
    flight_holders,
    ours,
    remote_ours,
    remote_rivals,
    rivals,
    sharing,
    sharing_rivals,
    waiters,
)
from bench.claims import bytes_of, row_of
from bench.client_fleet import fleet
from bench.client_transport import transport
from bench.contestant import MissingError, WorkloadError
from bench.crowd import wait_together
from bench.edge import measure_edge
from bench.edge_grpc import measure_grpc
from bench.edge_nginx import measure_nginx
from bench.flight import MEASURES as IN_AND_OUT
from bench.flight import measure_holder
from bench.flooded import flooded
from bench.flow import shape
from bench.imports import measure_import
from bench.jobs import Job, Scale
from bench.lab import measure_lab
from bench.lease_overload import overload
from bench.leasing import lease
from bench.measure import Bench, Figures, grow, spread, stalls, time_calls
from bench.observe import measure_observe
from bench.playground import measure_playground
from bench.remote_measure import MEASURES, measure_remote
from bench.shed_permits import measure_permit
from bench.sql import measure_grown, measure_sql
from bench.together import hit_together
from bench.web_calls import call_in_process
from bench.web_rules import decide_by_rules
from bench.web_serve import serve

BEHIND_HTTP = {
    "call": call_in_process,
    "rules": decide_by_rules,
    "serve": serve,
    "edge": measure_edge,
    "edge grpc": measure_grpc,
    "edge nginx": measure_nginx,
}


def run(job: Job, scale: Scale) -> Figures:
    try:
        if job.kind in MEASURES:
            return run_remote(job, scale)
        if job.kind in IN_AND_OUT:
            return run_in_flight(job, scale)
        if job.kind == "lease":
            return lease(job.contestant, scale.seconds, scale.repeats)
        if job.kind == "permit":
            return measure_permit(job.contestant, scale.seconds, scale.repeats)
        if job.kind == "flooded":
            return flooded(job.contestant)
        if job.kind == "overload":
            return overload(job.contestant)
        if job.kind == "claim":
            return row_of(job.contestant)
        if job.kind == "claim bytes":
            return bytes_of(job.contestant, job.keys)
        if job.kind == "fleet":
            return fleet(job.contestant, scale.asking)
        if job.kind == "transport":
            return transport(job.contestant, scale.seconds, scale.repeats)
        if job.kind in client_virtual.MEASURES:
            return client_virtual.MEASURES[job.kind](job.contestant)
        if job.kind == "simulate":
            return run_simulated(job, scale)
        if job.kind == "page":
            return measure_playground(job.contestant)
        if job.kind == "lab":
            return measure_lab(job.contestant, job.keys)
        if job.kind == "observe":
            return measure_observe(job.contestant, scale.seconds, scale.repeats)
        if job.kind == "sql":
            return measure_sql(job.contestant, job.keys)
        if job.kind == "sql grown":
            return measure_grown(job.contestant, job.keys)
        if job.kind == "import":
            return measure_import(job.contestant)
        if job.kind == "shape":
            return shape(job.contestant, scale.shaping)
        if job.kind in BEHIND_HTTP:
            return BEHIND_HTTP[job.kind](job.contestant, scale.seconds, scale.repeats)
        if job.kind == "wait":
            return run_waiting(job, scale)
        return run_together(job, scale) if job.kind == "together" else run_alone(job, scale)
    except (ImportError, MissingError) as reason:
        return {"missing": str(reason)}
    except WorkloadError as reason:
        return {"failed": str(reason)}


def run_simulated(job: Job, scale: Scale) -> Figures:
    from bench.lease_world import simulate  # which needs a client for Redis

    return simulate(job.contestant, scale.worlds)


def run_waiting(job: Job, scale: Scale) -> Figures:
    waiter = {each.name: each for each in waiters.waiters()}[job.contestant]
    return {"call": waiter.call, **asyncio.run(wait_together(waiter, scale.waiters))}


def run_together(job: Job, scale: Scale) -> Figures:
    known = (*sharing.sharers(), *sharing_rivals.sharers())
    sharer = {each.name: each for each in known}[job.contestant]
    return {"call": sharer.call, **hit_together(sharer, scale.seconds, scale.repeats)}


def run_remote(job: Job, scale: Scale) -> Figures:
    known = (*remote_ours.remotes(), *remote_rivals.remotes())
    remote = {each.name: each for each in known}[job.contestant]
    return {"call": remote.call, **asyncio.run(measure_remote(job, remote, scale))}


def run_in_flight(job: Job, scale: Scale) -> Figures:
    holder = {each.name: each for each in flight_holders.holders()}[job.contestant]
    return asyncio.run(measure_holder(job, holder, scale))


def run_alone(job: Job, scale: Scale) -> Figures:
    known = (*ours.contestants(), *sharing.contestants(), *rivals.contestants())
    contestant = {each.name: each for each in known}[job.contestant]
    with asyncio.Runner() as runner:
        bench = Bench(contestant, runner)
        bench.prove()
        return {"call": contestant.call, **measure(job, bench, scale)}


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
