"""The keys that a process knows, and which of them a request has."""

from __future__ import annotations

import threading
from typing import Final

from headgate.caches import ClearedWhenFull
from headgate.client.key_state import KeyState
from headgate.client.keys import KeyOf, key_reader, shortened
from headgate.client.learning import Learned
from headgate.client.outgoing import Outgoing
from headgate.client.usage import Usage
from headgate.errors import InvalidCall
from headgate.forks import after_fork
from headgate.limit import Limit
from headgate.wording import shown

MOST_KEYS: Final = 4096
"""The most keys whose knowledge a process keeps; their limits and pauses are in the store."""


class KeyStates:
    """The states of the keys of one budget."""

    def __init__(self, limits: tuple[Limit, ...], headroom: float, key: str | KeyOf, usage: Usage | None) -> None:
        self._limits, self._headroom, self.usage = limits, headroom, usage
        self._key_of = key_reader(key, usage)
        self._states: ClearedWhenFull[str, KeyState] = ClearedWhenFull(MOST_KEYS, self._new)
        self.by_host = self._states if key == "host" and usage is None else {}
        """The states by the hosts of requests, if nothing else of a request need be read."""
        self._renew()
        after_fork(self._renew)

    def _renew(self) -> None:
        self._lock = threading.Lock()

    def of(self, request: Outgoing) -> KeyState:
        """Return the state of the key that a request has."""
        if self.usage is not None:
            request.usage = self.usage.request(request.body)
        key = self._key_of(request)
        if not isinstance(key, str) or not key:
            raise InvalidCall(f"the key of a budget must be a string that is not empty; got {shown(key)}")
        return self.get(key)

    def get(self, key: str) -> KeyState:
        """Return the state of a key; one state, also if many threads ask for a new key at once."""
        key = shortened(key)
        found = self._states.get(key)
        if found is None:
            with self._lock:
                found = self._states[key]
        return found

    def learned(self) -> dict[str, tuple[Limit, ...]]:
        """Return the limits by key where the server has told other ones than were published."""
        return {key: state.learned.limits for key, state in list(self._states.items()) if state.learned.differs}

    def _new(self, key: str) -> KeyState:
        return KeyState(key, Learned(self._limits, self._headroom, self.usage is not None))
