"""`headgate serve`: the decision service."""

from __future__ import annotations

import argparse
from typing import Any


def add_verbs(verbs: Any) -> None:  # noqa: ANN401 - argparse has no public name for it
    """Add the verb to the parser."""
    about = "a service that rules on requests for nginx, Envoy, Traefik, Caddy and programs"
    verb = verbs.add_parser("serve", help=about, description=f"Run {about}.")
    verb.add_argument("--policy", metavar="FILE", help="the policy; it is followed while it changes")
    verb.add_argument("--envoy", metavar="DIR", help="limits in the files of envoyproxy/ratelimit, followed too")
    verb.add_argument(
        "--envoy-algorithm", default="fixed-window", metavar="NAME", help="for files that name none (fixed-window)"
    )
    verb.add_argument("--store", metavar="URL", help="where to count (shared memory, made for the run)")
    verb.add_argument("--workers", type=int, default=2, metavar="N", help="processes that serve (2)")
    verb.add_argument(
        "--listen", default="127.0.0.1:8080", metavar="PLACE", help="HOST:PORT or unix:/PATH (127.0.0.1:8080)"
    )
    verb.add_argument(
        "--grpc", metavar="HOST:PORT", help="where Envoy asks the first worker; the next has the next port"
    )
    verb.add_argument("--admin", metavar="PLACE", help="where operators find /metrics, /counts and /top of all workers")
    verb.add_argument(
        "--hash-addresses", action="store_true", help="list and log addresses as hashes, keyed with the policy's pepper"
    )
    verb.add_argument("--tls-cert", metavar="FILE", help="the certificate, for TLS")
    verb.add_argument("--tls-key", metavar="FILE", help="the key of the certificate")
    verb.add_argument(
        "--token-file", metavar="FILE", help="tokens, one in a line; each question needs one in X-Headgate-Token"
    )
    verb.add_argument("--open", action="store_true", help="answer every machine that can reach the service")
    verb.add_argument(
        "--trusted-proxy",
        action="append",
        metavar="CIDR",
        help="a network of proxies that tell of requests, or unix (loopback and unix); may be given several times",
    )
    verb.add_argument("--check", action="store_true", help="read every file, say what is wrong, and end")
    verb.set_defaults(verb=serve)


def serve(chosen: argparse.Namespace) -> str:
    """Serve until SIGTERM or Ctrl-C; or only check the files."""
    from headgate import edge

    names = (
        "policy", "envoy", "envoy_algorithm", "store", "workers", "listen", "grpc", "tls_cert", "tls_key", "token_file",
        "open", "admin", "hash_addresses",
    )  # fmt: skip
    given = {name: getattr(chosen, name) for name in names}
    if chosen.trusted_proxy:
        given["trusted"] = tuple(chosen.trusted_proxy)
    settings = edge.Settings(**given)
    if chosen.check:
        return edge.check(settings)
    edge.serve(settings, say=lambda text: print(text, flush=True))
    return "ended"
