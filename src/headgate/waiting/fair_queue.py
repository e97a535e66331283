"""Requests that wait: fair between tenants, by start-time fair queueing (Goyal, Vin and Cheng, 1996).

Every tenant has a tag. The waiting tenant with the lowest tag is served next, and its tag grows by 1/weight, so tenants
that always wait are served in proportion to their weights. A tenant that is new, or comes back after a pause, starts at
the tag that the others have reached: that of the last one served, and further by 1/weight of all that wait for each
unit of service. So a pause earns nothing, and tenants that always come anew cannot hold the others up.
"""

from __future__ import annotations

import heapq
from collections import OrderedDict
from typing import Generic, TypeVar

T = TypeVar("T")
MOST_TENANTS = 10_000
"""Tenants whose tags are kept. Beyond that, tenants that do not wait are forgotten, and with them the little
service that they had more than others."""
STALE = 64
"""Entries that the heap of lengths may have beyond four for each tenant, before it is rebuilt."""


class _Tenant(Generic[T]):
    __slots__ = ("name", "tag", "waiting", "weight")

    def __init__(self, name: str, weight: float, tag: float) -> None:
        self.name, self.weight, self.tag = name, weight, tag
        self.waiting: OrderedDict[T, None] = OrderedDict()
        """Requests in the order in which they came; one that gives up is found at once among thousands."""


class FairQueue(Generic[T]):
    """Waiting requests, each of a tenant."""

    def __init__(self) -> None:
        self.size = 0
        self._tenants: dict[str, _Tenant[T]] = {}
        self._reached = 0.0
        """The tag at which a new tenant starts."""
        self._weights = 0.0
        """The sum of the weights of all tenants that wait."""
        self._by_tag: list[tuple[float, bool, int, _Tenant[T]]] = []
        """One entry for each known tenant: its tag; whether it was served before, as new ones go first; a number."""
        self._by_length: list[tuple[float, int, _Tenant[T]]] = []
        """An entry for each request that came; one that is too long by now is mended when it is met."""
        self._serial = 0

    def add(self, tenant: str, weight: float, request: T) -> None:
        """Let a request wait."""
        self.size += 1
        self._serial += 1
        found = self._tenants.get(tenant)
        if found is None:
            if len(self._tenants) >= max(MOST_TENANTS, 2 * self.size):  # at least half of them do not wait
                self._forget_absent()
            found = self._tenants[tenant] = _Tenant(tenant, weight, self._reached)
            heapq.heappush(self._by_tag, (found.tag, False, self._serial, found))
        if found.waiting:
            self._weights -= found.weight
        else:
            found.tag = max(found.tag, self._reached)
        found.weight = weight
        found.waiting[request] = None
        self._weights += weight
        heapq.heappush(self._by_length, (-len(found.waiting) / weight, self._serial, found))
        if len(self._by_length) > STALE + 4 * len(self._tenants):
            self._measure()

    def take(self, newest: bool) -> T | None:
        """Remove the request that is served next: of its tenant's requests the oldest, or the newest."""
        while self._by_tag:
            tag, served, _, tenant = self._by_tag[0]
            if tag < tenant.tag:  # it was charged more meanwhile
                self._serial += 1
                heapq.heapreplace(self._by_tag, (tenant.tag, served, self._serial, tenant))
                continue
            self._reached = max(self._reached, tag)
            if not tenant.waiting:
                heapq.heappop(self._by_tag)
                del self._tenants[tenant.name]
                continue
            self._serve(1)
            tenant.tag = tag + 1 / tenant.weight
            self._serial += 1
            heapq.heapreplace(self._by_tag, (tenant.tag, True, self._serial, tenant))
            return self._pop(tenant, newest)
        return None

    def charge(self, tenant: str, units: float) -> None:
        """Count further units of service to a tenant, of a request that cost more than one."""
        self._serve(units)
        found = self._tenants.get(tenant)
        if found is not None:
            found.tag += units / found.weight

    def _serve(self, units: float) -> None:
        if self.size:
            if self._weights <= 0:  # a sum keeps nothing of a weight beside one that is 10^16 times as large
                self._weights = sum(each.weight for each in self._tenants.values() if each.waiting)
            self._reached += units / self._weights

    def drop(self, newest: bool) -> T | None:
        """Remove a request of the tenant with the longest queue for its weight: the newest, or the oldest."""
        while self._by_length:
            length, _, tenant = self._by_length[0]
            now = -len(tenant.waiting) / tenant.weight
            if not tenant.waiting:
                heapq.heappop(self._by_length)
            elif now != length:
                self._serial += 1
                heapq.heapreplace(self._by_length, (now, self._serial, tenant))
            else:
                return self._pop(tenant, newest)
        return None

    def remove(self, tenant: str, request: T) -> bool:
        """Remove a request that gave up. False if it does not wait here."""
        found = self._tenants.get(tenant)
        if found is None or request not in found.waiting:
            return False
        del found.waiting[request]
        self._left(found)
        return True

    def _pop(self, tenant: _Tenant[T], newest: bool) -> T:
        request, _ = tenant.waiting.popitem(last=newest)
        self._left(tenant)
        return request

    def _left(self, tenant: _Tenant[T]) -> None:
        self.size -= 1
        if not tenant.waiting:
            self._weights -= tenant.weight
        if not self.size:
            self._weights = 0.0  # rounding does not add up

    def _measure(self) -> None:
        self._by_length = [
            (-len(each.waiting) / each.weight, serial, each)
            for serial, each in enumerate(self._tenants.values())
            if each.waiting
        ]
        heapq.heapify(self._by_length)

    def _forget_absent(self) -> None:
        self._tenants = {name: each for name, each in self._tenants.items() if each.waiting}
        self._by_tag = [(each.tag, True, serial, each) for serial, each in enumerate(self._tenants.values())]
        heapq.heapify(self._by_tag)
