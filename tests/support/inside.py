"""The parts of Headgate that tests look at from outside, each by one function; no other test reads a private attribute.

None of them deserves a public name: an app has no use for it, or the name would promise how the work is done. A test
that can observe the behaviour by a public name does so.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sized
from typing import Any

from headgate import AsyncLimiter, Limiter, LoadShedder, cli
from headgate.caches import PathTable
from headgate.limiter.wait_queue import WaitQueue
from headgate.policy import Policy
from headgate.policy.compiled import CompiledPolicy
from headgate.stores.redis.node import Node
from headgate.stores.redis.renewal import PermitRenewal
from headgate.stores.redis.senders import Senders
from headgate.stores.redis.topology import Topology
from headgate.testing import ManualClock
from headgate.waiting import FairQueue
from headgate.waiting.timers import LoopTimers, Timers
from headgate.web.responder import Responder
from headgate.web.runtime import Runtime


def runtime_of(edge: Any) -> Runtime[Any]:
    """The runtime of an edge: tests give it a clock, and look which requests take a fast path."""
    runtime: Runtime[Any] = edge._runtime
    return runtime


def set_shedder_time(shedder: LoadShedder, clock: Any, now_ns: Callable[[], int]) -> None:
    """Let the shedder of a policy take its time from a simulation: its own is that of the machine."""
    shedder._clock, shedder._places.now_ns = clock, now_ns


def tenants_kept(queue: FairQueue[Any]) -> tuple[int, int]:
    """The numbers of tenants and of their queues' lengths that are kept: they are bounded, however many wait."""
    return len(queue._tenants), len(queue._by_length)


def queue_of(limiter: AsyncLimiter | Limiter) -> WaitQueue:
    """The callers that wait at a limiter: no key and no promise may be left behind."""
    return limiter._queue


def promises_left(limiter: AsyncLimiter | Limiter) -> dict[Any, Any]:
    """The promises of a limiter that are not used yet: an empty queue of a key would be a leak."""
    queues: dict[Any, Any] = limiter._queue.promises._queues
    return queues


def is_idle(limiter: AsyncLimiter | Limiter) -> bool:
    """Whether no queue is left, not even an empty one, and no question of a caller that has gone."""
    queue = limiter._queue
    return (queue.waiting, queue.by_key, queue._asked) == (0, {}, {})


def timers_of(limiter: Any) -> LoopTimers:
    """The timers of an async limiter or shaper in this event loop."""
    timers: LoopTimers = limiter._timers.here()
    return timers


def asleep(timers: LoopTimers) -> int:
    """The number of callers that sleep: time may go on when all are asleep."""
    return sum(not waiter.done() for *_, waiter in timers._heap)


def entries(timers: LoopTimers) -> int:
    """The number of entries in a heap of timers, also of callers that have gone."""
    return len(timers._heap)


def topology_of(store: Any) -> Topology:
    """The servers of a Redis store: tests open their breakers and make their replies fail."""
    topology: Topology = store._topology
    return topology


def node_of(store: Any) -> Node:
    """The server that a Redis store was opened with."""
    return topology_of(store).origin


def senders_of(store: Any) -> Senders:
    """The threads that send to the server of a Redis store: they are gathered before the server may answer."""
    return node_of(store)._senders


def renewal_of(store: Any) -> PermitRenewal:
    """The thread that renews permits on a server: tests renew in its place, at an instant."""
    renewal: PermitRenewal = store._renewal
    return renewal


def bound_of(limiter: Limiter) -> Any:
    """The bound limits of a limiter: a process is killed within one of their operations."""
    return limiter._bound


def tables_of(store: Any) -> Sized:
    """The tables of a store in this process: their number is bounded, whatever limits are made."""
    tables: Sized = store._tables
    return tables


def names_in(store: Any, namespace: str) -> Any:
    """The names of keys on a server: a test spoils one of them."""
    return store._space(namespace).names


def turns_left(timers: LoopTimers) -> dict[Any, Any]:
    """The turns of promises in an event loop: an empty line of turns would be a leak."""
    turns: dict[Any, Any] = timers._turns
    return turns


def loops_known(timers: Timers) -> int:
    """The number of event loops that timers are kept for: closed ones are forgotten."""
    return len(timers._timers)


def is_watched(clock: ManualClock) -> bool:
    """Whether timers watch a clock that is moved by hand."""
    return bool(clock._watchers)


def shaper_of(pump: Any) -> Any:
    """The shaper of a pump: a test fills it from elsewhere."""
    return pump._shaper


def shortcuts_kept(edge: Any) -> dict[Any, Any]:
    """The shortcuts that the policy of an edge keeps by rules and method: clients cannot make them many."""
    shortcuts: dict[Any, Any] = runtime_of(edge).responder_now._shortcuts
    return shortcuts


def fast_paths_kept(edge: Any) -> dict[tuple[str, str], Any]:
    """The fast paths that an edge has cached, by method and path."""
    tables = runtime_of(edge).fast_paths
    return {(method, path): found for method, table in tables.items() for path, found in table.items()}


def older_than(table: PathTable[Any]) -> int:
    """The number of paths in the older generation of a table."""
    return len(table._before)


def endpoint_responders(edge: Any) -> list[Responder[Any]]:
    """The responders that an edge has made for its endpoints."""
    return list(runtime_of(edge).fast_paths_at._responders.values())


def paths_kept(policy: Policy) -> int:
    """The number of paths whose rules a policy keeps."""
    return len(policy._index.found)


def bounds_kept(compiled: CompiledPolicy) -> int:
    """The number of limits that a policy of one rule with `at_most` keeps, one for each cost."""
    ((group,),) = compiled._groups.values()
    assert group.bounds is not None
    return len(group.bounds._askers)


def sqlite_connection(store: Any) -> Any:
    """The connection of a SQLite store: a test makes its file unable to grow."""
    return store._connection


def arguments_of_verbs(parser: argparse.ArgumentParser | None = None, name: str = "") -> dict[str, list[str]]:
    """The arguments of each verb of the command, by its words: the reference has to have all of them."""
    actions = (parser or cli._parser())._actions
    found: dict[str, list[str]] = {}
    for action in actions:
        if isinstance(action, argparse._SubParsersAction):
            for word, verb in action.choices.items():
                found |= arguments_of_verbs(verb, f"{name} {word}".strip())
    given = [action for action in actions if action.dest != "help"]
    return found or {name: [(each.option_strings or [str(each.metavar or each.dest).upper()])[0] for each in given]}
