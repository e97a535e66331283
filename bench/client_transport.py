"""What a budget adds to a request that need not wait: its transport and the bare one, in turn.

The server is in a process of its own, and answers with a few bytes as fast as Python can.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from importlib import import_module
from statistics import median
from time import perf_counter, process_time
from typing import Any, NamedTuple

from bench.contestant import MissingError, WorkloadError
from bench.harness import ROOT
from bench.measure import Figures
from bench.server import HOST, _free_port, _listens

TRANSPORTS = ("httpx2", "httpx2 async", "httpx", "httpx async")
LONGER = 10
WARM_UP = 50
ANSWER = (
    b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n"
    b"Date: Tue, 17 Nov 2026 03:00:00 GMT\r\n\r\n{}"
)


class Spent(NamedTuple):
    """One run: seconds of a request, by the wall and by this process's time on the processor."""

    wall: float
    cpu: float


class Answers(asyncio.Protocol):
    """Answers each request; a request here is one packet."""

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._transport.write(ANSWER)


async def answer(port: int) -> None:
    server = await asyncio.get_running_loop().create_server(Answers, HOST, port)
    await server.serve_forever()


def transport(name: str, seconds: float, repeats: int) -> Figures:
    """Ratios of neighbouring runs, their medians."""
    library, _, awaited = name.partition(" ")
    module = import_module(library)
    port = _free_port()
    process = subprocess.Popen([sys.executable, "-m", "bench.client_transport", str(port)], cwd=ROOT)
    try:
        if not _listens(process, port):
            raise MissingError("the server does not start")
        measure = awaited_runs if awaited else runs
        pairs = measure(module, f"http://{HOST}:{port}/", max(0.5, LONGER * seconds), repeats)
    finally:
        process.terminate()
        process.wait()
    bare, paced = zip(*pairs, strict=True)
    return {
        "bare_rate": 1 / min(each.wall for each in bare),
        "rate": 1 / min(each.wall for each in paced),
        "ratio": median(one.wall / other.wall for one, other in pairs),
        "cpu_us": 1e6 * min(each.cpu for each in paced),
        "bare_cpu_us": 1e6 * min(each.cpu for each in bare),
        "cpu_ratio": median(one.cpu / other.cpu for one, other in pairs),
    }


def paced(inner: Any) -> Any:
    from headgate.client import Budget
    from headgate.client.httpx import Transport

    return Transport(Budget("1000000/second"), inner)


def check(statuses: set[int]) -> None:
    if statuses != {200}:
        raise WorkloadError(f"answers were {statuses}, not 200")


def runs(module: Any, url: str, seconds: float, repeats: int) -> list[tuple[Spent, Spent]]:
    with (
        module.Client(transport=module.HTTPTransport()) as bare,
        module.Client(transport=paced(module.HTTPTransport())) as ours,
    ):
        check({http.get(url).status_code for http in (bare, ours) for _ in range(WARM_UP)})

        def spent(http: Any) -> Spent:
            began, cpu, count = perf_counter(), process_time(), 0
            while perf_counter() < began + seconds:
                response = http.get(url)
                count += 1
            check({response.status_code})
            return Spent((perf_counter() - began) / count, (process_time() - cpu) / count)

        return [(spent(bare), spent(ours)) for _ in range(repeats)]


def awaited_runs(module: Any, url: str, seconds: float, repeats: int) -> list[tuple[Spent, Spent]]:
    async def spent(http: Any) -> Spent:
        began, cpu, count = perf_counter(), process_time(), 0
        while perf_counter() < began + seconds:
            response = await http.get(url)
            count += 1
        check({response.status_code})
        return Spent((perf_counter() - began) / count, (process_time() - cpu) / count)

    async def all_runs() -> list[tuple[Spent, Spent]]:
        async with (
            module.AsyncClient(transport=module.AsyncHTTPTransport()) as bare,
            module.AsyncClient(transport=paced(module.AsyncHTTPTransport())) as ours,
        ):
            for http in (bare, ours):
                check({(await http.get(url)).status_code for _ in range(WARM_UP)})
            return [(await spent(bare), await spent(ours)) for _ in range(repeats)]

    return asyncio.run(all_runs())


if __name__ == "__main__":
    asyncio.run(answer(int(sys.argv[1])))
