"""The contestants of a fleet: each makes a call that sends one request, or tries to, as its documentation shows.

`python -m bench.client_callers NAME URL STORE TASKS SECONDS` is one process of a fleet.
"""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Awaitable, Callable
from time import monotonic, sleep
from typing import Any

from bench.client_servers import RATE
from bench.contestant import LARGE

PUBLISHED, LEARNED = "headgate, published", "headgate, told nothing"
BARE, TENACITY, RETRIES, BOTOCORE = "bare retries", "tenacity", "httpx-retries", "botocore adaptive"
Call = Callable[[], Awaitable[Any]]


def headgate(limits: Any) -> Callable[[str, str], Call]:
    def make(url: str, store: str) -> Call:
        import httpx2

        from headgate.client import Budget
        from headgate.client.httpx import Transport

        inner = httpx2.AsyncHTTPTransport(limits=httpx2.Limits(max_connections=None))
        http = httpx2.AsyncClient(transport=Transport(Budget(limits, store=store), inner), timeout=60)
        return lambda: http.get(url)

    return make


def bare(url: str, store: str) -> Call:
    import httpx2

    http = httpx2.AsyncClient(limits=httpx2.Limits(max_connections=None), timeout=60)
    return lambda: http.get(url)


def tenacity(url: str, store: str) -> Call:
    from tenacity import retry, retry_if_result, wait_random_exponential

    call = bare(url, store)

    @retry(retry=retry_if_result(lambda response: response.status_code == 429), wait=wait_random_exponential(max=60))
    async def attempt() -> Any:
        return await call()

    return attempt


def httpx_retries(url: str, store: str) -> Call:
    import httpx
    from httpx_retries import RetryTransport

    inner = httpx.AsyncHTTPTransport(limits=httpx.Limits(max_connections=None))
    http = httpx.AsyncClient(transport=RetryTransport(transport=inner), timeout=60)
    return lambda: http.get(url)


CALLS: dict[str, Callable[[str, str], Call]] = {
    PUBLISHED: headgate(f"{RATE}/second"),
    LEARNED: headgate(()),
    BARE: bare,
    TENACITY: tenacity,
    RETRIES: httpx_retries,
}


def botocore_limiter() -> Any:
    """The rate limiter of botocore's adaptive mode, put together as its `register_retry_handler` does."""
    from botocore.retries import adaptive, bucket, throttling

    class Detector:
        def is_throttling_error(self, status: int) -> bool:
            return status == 429

    clock = bucket.Clock()
    return adaptive.ClientRateLimiter(
        rate_adjustor=throttling.CubicCalculator(starting_max_rate=0, start_time=clock.current_time()),
        rate_clocker=adaptive.RateClocker(clock),
        token_bucket=bucket.TokenBucket(max_rate=1, clock=clock),
        throttling_detector=Detector(),
        clock=clock,
    )


def run_botocore(url: str, tasks: int, seconds: float) -> None:
    """In threads, since botocore's bucket blocks."""
    import httpx

    limiter, until = botocore_limiter(), monotonic() + seconds
    http = httpx.Client(limits=httpx.Limits(max_connections=None), timeout=60)

    def work() -> None:
        while monotonic() < until:
            limiter.on_sending_request(request=None)
            limiter.on_receiving_response(status=http.get(url).status_code)

    for _ in range(tasks):
        threading.Thread(target=work, daemon=True).start()
    sleep(seconds)


async def run_tasks(call: Call, tasks: int, seconds: float) -> None:
    async def work() -> None:
        for _ in range(LARGE):
            await call()

    working = [asyncio.create_task(work()) for _ in range(tasks)]
    done, _ = await asyncio.wait(working, timeout=seconds, return_when=asyncio.FIRST_EXCEPTION)
    for task in done:
        task.result()
    for task in working:
        task.cancel()
    await asyncio.wait(working)


if __name__ == "__main__":
    name, url, store, tasks, seconds = sys.argv[1:]
    if name == BOTOCORE:
        run_botocore(url, int(tasks), float(seconds))
    else:
        asyncio.run(run_tasks(CALLS[name](url, store), int(tasks), float(seconds)))
