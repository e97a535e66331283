"""Hosts: one spelling for every way a client may write a name, and patterns such as `*.example.com`.

A client chooses the case of a host, a port and a final dot. None of these makes a different host:
`API.example.com.:443` is `api.example.com`, for conditions and for keys.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from headgate.policy.path import glob

LONGEST: Final = 253
"""Characters of a name, by RFC 1035."""


def plain_host(text: str) -> str:
    """Return a host as it is compared and counted: in lower case, without a port or a final dot."""
    host = text.lower()
    if host.startswith("["):
        return host.partition("]")[0] + "]" if "]" in host else host
    return host.partition(":")[0].removesuffix(".")


def compile_host(text: str) -> Callable[[str], bool]:
    """Return a test for hosts in the form of `plain_host`; raise ValueError for a wrong pattern."""
    host = plain_host(text)
    if not host or len(text) > LONGEST:
        raise ValueError(f"a host must have from 1 to {LONGEST} characters, as in *.example.com; got {text[:40]!r}")
    if host != text.lower().removesuffix("."):
        raise ValueError(f"a host is compared without its port: write {host}; got {text!r}")
    return glob(host) if "*" in host else host.__eq__
