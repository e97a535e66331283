"""The app of a worker, from its settings."""

from __future__ import annotations

from pathlib import Path

from headgate.edge.app import App
from headgate.edge.proxied import Check
from headgate.edge.runtime import EdgeRuntime
from headgate.edge.settings import Settings
from headgate.errors import InvalidCall
from headgate.policy import Proxies


def build(settings: Settings, store: str) -> tuple[App, EdgeRuntime]:
    """Return the app and its runtime; raise if a file cannot be read."""
    runtime = EdgeRuntime(settings.policy, store)
    check = None if settings.policy is None else Check(runtime, Proxies(settings.trusted))
    return App(check, read_tokens(settings.token_file)), runtime


def read_tokens(file: str | None) -> tuple[bytes, ...]:
    """Return the tokens of a file, one in each line, so that an old one and a new one can be valid together."""
    if file is None:
        return ()
    try:
        lines = Path(file).read_bytes().split()
    except OSError as reason:
        raise InvalidCall(f"cannot read the token file {file}: {reason.strerror}") from None
    short = [at for at, line in enumerate(lines, 1) if len(line) < SHORTEST]
    if not lines or short:
        raise InvalidCall(f"{file} needs a token of at least {SHORTEST} characters in each line")
    return tuple(lines)


SHORTEST = 16
