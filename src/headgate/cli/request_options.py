"""A request on the command line, as `policy explain` and `key` take it."""

from __future__ import annotations

import argparse
from typing import Any

from headgate.errors import InvalidCall
from headgate.policy import Proxies, RequestView
from headgate.wording import shown


def add_request(parser: Any, ip: str | None = "127.0.0.1") -> None:  # noqa: ANN401 - argparse has no public name for it
    """Add the options that describe a request, which comes from `ip` unless they say otherwise."""
    parser.add_argument("--method", help="default: GET")
    parser.add_argument("--path", help="default: /")
    parser.add_argument("--ip", default=ip, help="the peer's address" + (f"; default: {ip}" if ip else ""))
    parser.add_argument("--host", default="")
    parser.add_argument("--header", action="append", default=[], metavar="NAME:VALUE")
    parser.add_argument("--query", default="")
    parser.add_argument("--user")
    parser.add_argument("--plan")
    parser.add_argument("--trusted-proxy", action="append", default=[], metavar="CIDR")


def view_of(chosen: argparse.Namespace) -> RequestView:
    """Return the request that the options describe."""
    headers: dict[str, list[str]] = {}
    for line in chosen.header:
        name, colon, value = line.partition(":")
        if not colon or not name.strip():
            raise InvalidCall(f"--header is NAME:VALUE; got {line!r}")
        headers.setdefault(name.strip().lower(), []).append(value.strip())
    path, _, query = (chosen.path or "/").partition("?")
    if not path.startswith("/"):
        raise InvalidCall(f"--path is the path of a request, such as /login; got {shown(path)}")
    if chosen.host:
        headers["host"] = [chosen.host]
    view = RequestView((chosen.method or "GET").upper(), path, headers, chosen.ip or "", Proxies(chosen.trusted_proxy))
    view.query_string = chosen.query or query
    view.user, view.plan = chosen.user, chosen.plan
    return view
