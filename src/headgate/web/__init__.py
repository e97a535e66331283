"""Policies in front of apps: a module for each framework.

The names here are for services of our own that ask a policy about requests of others; each is loaded when it is asked
for, since an app needs the modules of its framework only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

__all__ = [
    "ASGI", "RawResponse", "Reader", "RequestLimits", "Runtime", "ScopeHeaders", "WebOptions",
    "limits_of", "plain_fields", "snapshot_of",
]  # fmt: skip

if TYPE_CHECKING:
    from headgate.web.asgi_requests import ScopeHeaders
    from headgate.web.edge_snapshot import snapshot_of
    from headgate.web.headers import ASGI
    from headgate.web.options import WebOptions
    from headgate.web.request_decision import plain_fields
    from headgate.web.request_limits import RequestLimits, limits_of
    from headgate.web.responder import RawResponse
    from headgate.web.runtime import Reader, Runtime
else:
    _LATER = {
        "ASGI": "headgate.web.headers",
        "RawResponse": "headgate.web.responder",
        "Reader": "headgate.web.runtime",
        "RequestLimits": "headgate.web.request_limits",
        "Runtime": "headgate.web.runtime",
        "ScopeHeaders": "headgate.web.asgi_requests",
        "WebOptions": "headgate.web.options",
        "limits_of": "headgate.web.request_limits",
        "plain_fields": "headgate.web.request_decision",
        "snapshot_of": "headgate.web.edge_snapshot",
    }

    def __getattr__(name: str) -> object:
        if name not in _LATER:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from importlib import import_module

        return getattr(import_module(_LATER[name]), name)
