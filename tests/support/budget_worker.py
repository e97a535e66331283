"""A process of a fleet of callers: `python -m tests.support.budget_worker URL STORE LIMIT TASKS`.

It sends until standard input ends, says "sent" after its first answer, and prints its counts as a line of JSON.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections import Counter

import httpx2

from headgate import Budget, BudgetExhausted
from headgate.client.httpx import Transport


async def call(http: httpx2.AsyncClient, url: str, seen: Counter[str]) -> None:
    while True:
        try:
            response = await http.get(url)
        except BudgetExhausted:
            seen["refused here"] += 1
            await asyncio.sleep(0.05)
        except Exception as error:
            seen[type(error).__name__] += 1
            await asyncio.sleep(0.05)
        else:
            seen[str(response.status_code)] += 1
            if sum(seen.values()) == 1:
                print("sent", flush=True)


async def main(url: str, store: str, limit: str, tasks: str) -> None:
    budget, seen = Budget(limit, store=store), Counter[str]()
    async with httpx2.AsyncClient(transport=Transport(budget)) as http:
        callers = [asyncio.create_task(call(http, url, seen)) for _ in range(int(tasks))]
        await asyncio.to_thread(sys.stdin.read)
        for caller in callers:
            caller.cancel()
        await asyncio.gather(*callers, return_exceptions=True)
    await budget.aclose()
    print(json.dumps(seen), flush=True)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
