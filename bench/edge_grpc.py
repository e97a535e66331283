"""`ShouldRateLimit` beside an empty answer of grpc.aio: both get the same call, in turn, over HTTP/2.

`python -m bench.edge_grpc PORT` is the server of grpc.aio.
"""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from bench.contestant import MissingError, WorkloadError
from bench.edge import LONGER, Server, beside, ended, in_turn, pin, prepared, started
from bench.edge_load import call
from bench.grpc_load import CONNECTIONS, HOST, UNDER_WAY
from bench.harness import ROOT
from bench.measure import Figures
from bench.server import _free_port, _listens
from bench.sharer import own_directory

SHOULD = "ShouldRateLimit, a descriptor of 2 entries"
METHOD = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit"
FILE = """\
domain: edge
descriptors:
  - key: generic_key
    value: api
    descriptors:
      - {key: remote_address, rate_limit: {unit: year, requests_per_unit: 4000000000}}
  - key: generic_key
    value: few
    descriptors:
      - {key: remote_address, rate_limit: {unit: year, requests_per_unit: 20}}
"""


def message(value: str) -> bytes:
    """A request of Envoy with one descriptor of two entries, in the bytes of protobuf."""

    def field(number: int, data: bytes) -> bytes:
        return bytes((number << 3 | 2, len(data))) + data

    def entry(key: bytes, text: bytes) -> bytes:
        return field(1, field(1, key) + field(2, text))

    entries = entry(b"generic_key", value.encode()) + entry(b"remote_address", b"203.0.113.9")
    return field(1, b"edge") + field(2, entries)


def measure_grpc(name: str, seconds: float, repeats: int) -> Figures:
    """CPU for a call and the most calls a second, in turn."""
    for_server, _ = prepared("grpc", "hpack", "google.protobuf")
    with own_directory() as directory, ExitStack() as running:
        empty = running.enter_context(answering(for_server))
        service = running.enter_context(limiting(directory, for_server))
        prove(service.port)
        span = max(1.0, LONGER * seconds)
        in_turn([empty, service], span, repeats, lambda port, time: call(port, METHOD, message("api"), time))
    return {"call": name, **beside(empty, service)}


def prove(port: int) -> None:
    """Ask by the client of grpcio: of 25 calls the first 20 have to pass, and no other."""
    import grpc

    with grpc.insecure_channel(f"{HOST}:{port}") as channel:
        ask: Any = channel.unary_unary(METHOD)
        codes = [bytes(ask(message("few"), timeout=10))[1] for _ in range(25)]  # the first field is the overall code
    if codes != [1] * 20 + [2] * 5:
        raise WorkloadError(f"the answers were {codes}")


@contextmanager
def answering(core: set[int]) -> Iterator[Server]:
    """A server of grpc.aio that answers with no bytes."""
    port = _free_port()
    words = [sys.executable, "-m", "bench.edge_grpc", str(port)]
    with ended(subprocess.Popen(words, cwd=ROOT)) as process:
        if not _listens(process, port):
            raise MissingError("grpc.aio does not start")
        pin(process.pid, core)
        yield Server("grpc.aio", port, process.pid, [], [])


@contextmanager
def limiting(directory: str, core: set[int]) -> Iterator[Server]:
    """The worker for gRPC of `headgate serve`."""
    limits = Path(directory) / "limits"
    limits.mkdir()
    (limits / "edge.yaml").write_text(FILE)
    options = ["--envoy", str(limits), "--workers", "1", "--listen", f"{HOST}:0", "--grpc", f"{HOST}:0"]
    with started(options) as (ready, workers):
        found = re.search(rb"grpc://[^:]+:(\d+)", ready)
        if found is None:
            raise MissingError("headgate serve has no port for gRPC")
        pin(workers[-1], core)
        yield Server("headgate", int(found[1]), workers[-1], [], [])


async def serve(port: int) -> None:
    import grpc

    async def answer(request: bytes, context: Any) -> bytes:
        return b""

    service, _, method = METHOD[1:].partition("/")
    handlers = {method: grpc.unary_unary_rpc_method_handler(answer)}
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, handlers),))
    server.add_insecure_port(f"{HOST}:{port}")
    await server.start()
    await server.wait_for_termination()


ABOUT = f"over {CONNECTIONS} connections with {UNDER_WAY} calls under way on each"
if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1])))
