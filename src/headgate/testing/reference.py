"""The definition, as a store: the reference steps over a dict. What every other store is compared with."""

from __future__ import annotations

from headgate.engine import pure
from headgate.stores import MemoryStore


class ReferenceStore(MemoryStore):
    """A memory store on the pure engine, whichever engine was chosen."""

    _engine_type = pure.Engine
