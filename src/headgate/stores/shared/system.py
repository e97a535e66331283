"""Where shared stores work: a system with POSIX locks, and the native engine."""

from __future__ import annotations

import sys
from typing import Final

from headgate.engine import NATIVE, SHARES
from headgate.errors import StoreError

try:
    import fcntl
except ModuleNotFoundError:  # as on Windows
    fcntl = None  # type: ignore[assignment]

_INSTEAD: Final = "use memory:// for one process, redis:// for several"


def check_system() -> None:
    """An error where processes cannot share at all."""
    if sys.modules.get("fcntl") is None or (NATIVE and not SHARES):
        raise StoreError(
            f"there are no shared stores on this system ({sys.platform}), only on Linux and macOS: {_INSTEAD}"
        )


def check_engine() -> None:
    """An error where this process cannot take part."""
    check_system()
    if not NATIVE:
        raise StoreError(
            "shared stores need the native engine, which is not here: install a C compiler and reinstall without "
            f"HEADGATE_PURE, or {_INSTEAD}"
        )


__all__ = ["check_engine", "check_system", "fcntl"]
