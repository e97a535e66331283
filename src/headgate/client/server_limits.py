"""The limits that a server tells in a response, in any of its header fields. All times are seconds."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ServerLimit:
    """One limit of the server, as a response tells it; a field that the response does not tell is None."""

    name: str | None = None
    """The bucket, resource, policy or unit: "core" at GitHub, "requests" or "tokens" at OpenAI."""
    limit: int | None = None
    """The amount of a window."""
    window: float | None = None
    remaining: int | None = None
    reset: float | None = None
    """The time from now until `remaining` is renewed; 0 for an instant that has passed."""
    retry_after: float | None = None
    """The time to wait, told as such."""


@dataclass(frozen=True, slots=True)
class ServerResponse:
    """A response, as far as limits and retries are concerned."""

    status: int
    refused: bool = False
    """True if a limit refused the request: 429, or GitHub's 403 without quota. The server did not process it."""
    retry_after: float | None = None
    """The time to wait before the next request: told as such, or the reset of the limits that refused."""
    should_retry: bool | None = None
    """Whether the server asks for a retry or forbids it; None if it leaves that to the client."""
    told: tuple[ServerLimit, ...] = ()
    """The limits that the response tells, each one once."""
