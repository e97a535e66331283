"""Parts of an operating system that Windows does not have. No other file imports their modules at its top.

Importing Headgate works everywhere. A feature that needs such a part tells so when it is used: `needs`.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType

from headgate.errors import StoreError


def needs(module: str, feature: str, instead: str) -> ModuleType:
    """Return a module of this system, or raise `StoreError`: the feature does not exist here."""
    try:
        return import_module(module)
    except ImportError:
        raise missing(feature, instead) from None


def missing(feature: str, instead: str) -> StoreError:
    """Return the error of a feature that this system does not have."""
    return StoreError(f"{feature} needs Linux or macOS, and this system is {sys.platform}: {instead}")


def lock_file(fd: int, feature: str, instead: str, *, shared: bool = False) -> bool:
    """Lock an open file until it is closed; return False if another process holds it."""
    fcntl = needs("fcntl", feature, instead)
    try:
        fcntl.flock(fd, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def unlock_file(fd: int) -> None:
    """Unlock a file; closing it alone leaves it locked by a child that was forked meanwhile."""
    fcntl = import_module("fcntl")
    fcntl.flock(fd, fcntl.LOCK_UN)


def most_open_files(wanted: int) -> int:
    """Return the number of files that this process may open, raised to `wanted` as far as the system lets it."""
    try:
        import resource
    except ImportError:  # Windows has no such bound
        return wanted
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    allowed = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < allowed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
        return allowed
    return allowed if soft == resource.RLIM_INFINITY else soft
