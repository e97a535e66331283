"""The homes of the state, and how a URL becomes one."""

from __future__ import annotations

from urllib.parse import parse_qsl, urlsplit

from headgate.clock import Clock
from headgate.errors import StoreError
from headgate.stores.contract import Gate, Store
from headgate.stores.memory import MemoryStore

__all__ = ["Gate", "MemoryStore", "Store", "open_store"]


def open_store(store: Store | str | None, clock: Clock | None) -> Store:
    """A ready store as it is, or the one a URL names; each `memory://` is a new one."""
    if store is None:
        return MemoryStore(clock=clock)
    if not isinstance(store, str):
        if clock is not None:
            raise StoreError("a ready store has its own clock; give the clock to the store instead")
        if not callable(getattr(store, "gate", None)):
            raise StoreError(f"a store is a URL such as memory:// or a Store; got {store!r}")
        return store
    scheme = urlsplit(store).scheme
    if scheme == "memory":
        return _open_memory(store, clock)
    raise StoreError(f"no store for {scheme or 'a URL without a scheme'!r} URLs; there is memory://")


def _open_memory(url: str, clock: Clock | None) -> MemoryStore:
    parts = urlsplit(url)
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    if parts.netloc or parts.path.strip("/") or not options.keys() <= {"max_keys", "max_bytes"}:
        raise StoreError(f"cannot read {url!r}; write memory:// or memory://?max_keys=100000&max_bytes=16777216")
    try:
        numbers = {name: int(value) for name, value in options.items()}
    except ValueError:
        raise StoreError(f"max_keys and max_bytes in {url!r} must be whole numbers") from None
    return MemoryStore(**numbers, clock=clock)
