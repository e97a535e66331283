"""Warnings in the log about a probable misconfiguration, each once and with the setting that mends it."""

from __future__ import annotations

import multiprocessing
import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from headgate.policy import RequestView
from headgate.stores import MemoryStore, Store
from headgate.wording import log_of

LOOKED_AT: Final = 1000
"""The number of requests that are examined; no warning comes after them."""
FORWARDED: Final = ("x-forwarded-for", "forwarded")

log = log_of("headgate.web")


class Misconfiguration:
    """Examines the first requests of a process."""

    def __init__(self, trusts_proxies: bool) -> None:
        self._trusts = trusts_proxies
        self._seen = 0
        self._clients: set[str | None] = set()
        self._forwarded = False

    def look(self, view: RequestView) -> bool:
        """Examine one request; return whether more are to be examined."""
        self._seen += 1
        if len(self._clients) < 2:
            self._clients.add(view.client)
        headers = view.headers
        if not self._trusts and not self._forwarded and (FORWARDED[0] in headers or FORWARDED[1] in headers):
            self._forwarded = True
            log.warning(
                "requests have forwarded headers, but no proxy is trusted: all clients behind a proxy share one count. "
                "Write the proxy's addresses, such as 10.0.0.0/8, in trusted_proxies=[...]"
            )
        if self._seen < LOOKED_AT:
            return True
        if len(self._clients) == 1 and any(self._clients) and not self._forwarded:
            log.warning(
                "the first %d requests all came from %s. If that is a proxy, all clients share one count: write its "
                "address in trusted_proxies=[...]",
                LOOKED_AT,
                next(iter(self._clients)),
            )
        return False


def warn_of_workers(stores: Iterable[Store]) -> None:
    """Warn if limits are in memory and there are several processes: each admits the whole limit."""
    if any(isinstance(store, MemoryStore) for store in stores) and _workers_around():
        log.warning(
            "the limits are in the memory of this process, and there are several: each process admits the whole limit. "
            "Write store='shared:///dev/shm/api' to share them on this host, or store='redis://...' for several hosts"
        )


def _workers_around() -> bool:
    wanted = os.environ.get("WEB_CONCURRENCY", "")
    several = wanted.isdigit() and int(wanted) > 1
    return several or _gunicorn_workers() > 1 or multiprocessing.parent_process() is not None


def _gunicorn_workers() -> int:
    """Return the number of workers on the parent's command line if it is gunicorn and can be read, else 0."""
    try:
        words = Path(f"/proc/{os.getppid()}/cmdline").read_text(errors="replace").split("\0")
    except OSError:
        return 0
    if not any("gunicorn" in word for word in words[:3]):
        return 0
    told = re.search(r"(?:-w|--workers)[ =]?(\d+)", " ".join(words))
    return int(told[1]) if told else 1
