"""The reference steps as a store, with which every other store is compared."""

from __future__ import annotations

from headgate.engine import pure
from headgate.stores import MemoryStore


class ReferenceStore(MemoryStore):
    """A memory store that always uses the pure engine."""

    _engine_type = pure.Engine
