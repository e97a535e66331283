"""What is measured and stated, a file for each section. To add one: a file, and its line here."""

from bench.sections import (
    asynchronous,
    flat,
    flight,
    frameworks,
    hit,
    imports,
    leases,
    leases_overload,
    leases_sim,
    memory,
    paths,
    redis,
    redis_async,
    redis_cpu,
    redis_memory,
    redis_threads,
    rivals,
    several,
    shared,
    shedding,
    waiting,
    web,
)
from bench.sections.section import Section

__all__ = ["SECTIONS", "Section"]

SECTIONS: list[Section] = [
    hit.SECTION,
    rivals.SECTION,
    paths.SECTION,
    several.SECTION,
    memory.SECTION,
    asynchronous.SECTION,
    flat.SECTION,
    shared.SECTION,
    redis.SECTION,
    redis_async.SECTION,
    redis_threads.SECTION,
    redis_cpu.SECTION,
    redis_memory.SECTION,
    waiting.SECTION,
    web.SECTION,
    leases.SECTION,
    frameworks.SECTION,
    leases_sim.SECTION,
    flight.SECTION,
    imports.SECTION,
    leases_overload.SECTION,
    shedding.SECTION,
]
