"""The decision service: a policy as a server of its own, which proxies and programs in other languages ask."""

from headgate.edge.service import check, serve
from headgate.edge.settings import Settings

__all__ = ["Settings", "check", "serve"]
