"""Keys of budgets: which calls share a limit of the server."""

from __future__ import annotations

from collections.abc import Callable
from hashlib import blake2b
from typing import Final

from headgate.client.outgoing import Outgoing
from headgate.client.usage import Usage
from headgate.errors import InvalidCall
from headgate.wording import shown, suggestion

CREDENTIALS: Final = ("authorization", "x-api-key", "api-key", "x-goog-api-key", "private-token", "cookie")
"""Header fields that tell a server whose limit is meant, the first that is there."""
LONGEST_KEY: Final = 128
"""Longer keys are hashed, so that a host or a model of any length is one key."""

KeyOf = Callable[[Outgoing], str]


def key_reader(key: str | KeyOf, usage: Usage | None) -> KeyOf:
    """Return the function that finds the key of a request, or raise `InvalidCall`."""
    if callable(key):
        return key
    if key == "host":
        return _host
    if key == "credential":
        return _credential
    if key == "model":
        if usage is None:
            raise InvalidCall('key="model" reads the body of a request: add usage=chat, or another Usage')
        return _model
    known = ("host", "credential", "model")
    hint = suggestion(key, known) if isinstance(key, str) else f"use one of {', '.join(known)}, or a function"
    raise InvalidCall(f"no key of a budget is called {shown(key)}: {hint}")


def shortened(key: str) -> str:
    """Return a key of bounded length."""
    return key if len(key) <= LONGEST_KEY else f"{key[:64]}#{_hashed(key)}"


def _hashed(text: str) -> str:
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16, person=b"headgate-client").hexdigest()


def _host(request: Outgoing) -> str:
    return request.host


def _credential(request: Outgoing) -> str:
    """Return the host and a hash of the credential: neither the store nor a log may have the credential itself."""
    for name in CREDENTIALS:
        value = request.headers.get(name)
        if value:
            return f"{request.host}:{_hashed(value)}"
    return request.host


def _model(request: Outgoing) -> str:
    model = request.usage.model if request.usage is not None else None
    return f"{request.host}:{model}" if model else request.host
