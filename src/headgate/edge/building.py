"""The app of a worker, from its settings."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from headgate.edge.app import App
from headgate.edge.json_check import JsonCheck
from headgate.edge.policy_check import PolicyCheck
from headgate.edge.proxy_check import ProxyCheck
from headgate.edge.runtime import EdgeRuntime
from headgate.edge.settings import Settings
from headgate.errors import InvalidCall
from headgate.policy import Proxies

if TYPE_CHECKING:
    from headgate.edge.envoy import EnvoyLimits

SHORTEST: Final = 16
"""Characters of a token: fewer could be guessed."""


def build(settings: Settings, store: str) -> tuple[App, EdgeRuntime]:
    """Return the app and its runtime; raise if a file cannot be read."""
    runtime = EdgeRuntime(settings.policy, store, settings.hash_addresses)
    has_policy = settings.policy is not None
    check = ProxyCheck(runtime, Proxies(settings.trusted)) if has_policy else None
    questions = JsonCheck(PolicyCheck(runtime) if has_policy else None, runtime.plain)
    return App(check, questions, read_tokens(settings.token_file), _envoy(settings, runtime)), runtime


def _envoy(settings: Settings, runtime: EdgeRuntime) -> EnvoyLimits | None:
    if settings.envoy is None:
        return None
    from headgate.edge.envoy import EnvoyLimits  # here, because protobuf is needed for Envoy only

    return EnvoyLimits(Path(settings.envoy), runtime.store, algorithm=settings.envoy_algorithm)


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
