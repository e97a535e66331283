"""The settings of a service, as its command line gives them. Workers get a copy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

LOOPBACK: Final = ("127.0.0.0/8", "::1", "unix")
"""The peers whose forwarded headers are trusted by default."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The policy, the store and the addresses of a service."""

    policy: str | None = None
    """The file of the policy; None if only limits of Envoy are served."""
    envoy: str | None = None
    """The directory with limits in the format of envoyproxy/ratelimit."""
    envoy_algorithm: str = "fixed-window"
    store: str | None = None
    """The URL of the store; None for shared memory that is made for the run."""
    workers: int = 2
    """The number of processes for each protocol."""
    listen: str = "127.0.0.1:8080"
    grpc: str | None = None
    """The address of the first worker for gRPC; the next worker listens on the next port."""
    admin: str | None = None
    """The address at which operators find the counts of all workers."""
    counts: str | None = None
    """The directory in which workers publish their counts; made for the run, if there is an admin port."""
    hash_addresses: bool = False
    """Whether addresses appear as hashes where keys are listed and logged."""
    tls_cert: str | None = None
    tls_key: str | None = None
    token_file: str | None = None
    """A file of tokens, one of which each question must have."""
    open: bool = False
    """Whether to answer questions from anywhere."""
    trusted: tuple[str, ...] = LOOPBACK
    """Networks of proxies whose forwarded headers are trusted."""
