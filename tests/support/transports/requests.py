"""requests."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import requests
from requests.adapters import HTTPAdapter

from headgate.client import Budget
from headgate.client.requests import Adapter
from tests.support.transports.clients import Body, Client, Got, lowered


class RequestsClient:
    """A session."""

    def __init__(self, session: requests.Session, address: str) -> None:
        self._session, self._address = session, address

    def ask(
        self, method: str = "GET", path: str = "/", headers: Mapping[str, str] | None = None, body: Body = b""
    ) -> Got:
        content: Any = iter(body) if isinstance(body, list) else body
        response = self._session.request(method, self._address + path, headers=headers, data=content, timeout=10)
        return Got(response.status_code, lowered(response.headers.items()), response.content)


@contextmanager
def in_threads(budget: Budget, address: str) -> Iterator[Client]:
    with requests.Session() as session:
        session.trust_env = False
        session.mount("http://", Adapter(budget, HTTPAdapter(pool_maxsize=1, pool_block=True)))
        yield RequestsClient(session, address)
