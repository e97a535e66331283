"""The client of a gRPC call: its peer, its proxies, its user."""

from __future__ import annotations

import os
import tempfile

import pytest

from tests.support.grpc_servers import each_sort, serving

pytest.importorskip("grpc")
from headgate.web.grpc import Rpc
from headgate.web.grpc.rpc import address_of

pytestmark = pytest.mark.engineless


@pytest.mark.parametrize(("trusted", "last"), [("127.0.0.1", "OK"), ("10.0.0.0/8", "RESOURCE_EXHAUSTED")])
def test_forwarded_metadata_is_believed_of_trusted_proxies_only(trusted, last):
    """The loopback address is one in the first server, and nobody's proxy in the second."""
    with serving(default="1/minute", trusted_proxies=[trusted]) as server:
        claims = ("203.0.113.1", "6.6.6.6, 203.0.113.1", "203.0.113.2")
        codes = [server.ask(metadata=[("x-forwarded-for", claim)]).code.name for claim in claims]
        assert codes == ["OK", "RESOURCE_EXHAUSTED", last]


@each_sort
def test_the_peer_of_a_unix_socket_is_a_proxy(kind):
    """It has no address of its own."""
    with tempfile.TemporaryDirectory() as short:
        at = f"unix:{os.path.join(short, 's')}"
        with serving(kind, default="1/minute", trusted_proxies=["unix"], at=at) as server:
            claims = ("203.0.113.1", "203.0.113.1", "203.0.113.2")
            codes = [server.ask(metadata=[("x-forwarded-for", claim)]).code.name for claim in claims]
            assert codes == ["OK", "RESOURCE_EXHAUSTED", "OK"]


@pytest.mark.parametrize(
    ("peer", "address"),
    [
        ("ipv4:203.0.113.9:50051", "203.0.113.9"), ("ipv6:[2001:db8::1]:50051", "2001:db8::1"),
        ("ipv6:%5B2001:db8::1%5D:50051", "2001:db8::1"), ("ipv6:%5Bfe80::1%25eth0%5D:50051", "fe80::1"),
        ("ipv6:[::ffff:203.0.113.9]:50051", "203.0.113.9"), ("unix:", None), ("unix:/tmp/socket", None),
        ("unix-abstract:name", None), ("", None), ("ipv4:", None), ("ipv6:%5B", None), ("unknown", None),
    ],
)  # fmt: skip
def test_addresses_are_read_from_what_gRPC_calls_a_peer(peer, address):
    """Escaped or not; what has no address is nobody."""
    assert address_of(peer) == address


def test_who_it_is_and_what_it_asked_for():
    """Functions get the whole call; metadata is as headers are, and what is binary is left out."""
    seen: list[Rpc] = []

    def user(rpc: Rpc) -> str:
        seen.append(rpc)
        return str(dict(rpc.context.invocation_metadata())["x-user"])

    rule = {"key": ["user", {"header": "x-data-bin"}], "limits": {"default": "1/minute", "pro": "2/minute"}}
    options = {"user": user, "plan": lambda view: view.header("x-plan")}
    with serving(policy={"rules": [rule]}, **options) as server:
        ann = [("x-user", "ann"), ("x-data-bin", b"\xff")]
        assert server.codes(2, "Unary", b"hi", metadata=ann) == ["OK", "RESOURCE_EXHAUSTED"]
        assert server.codes(1, "Collect", metadata=[("x-user", "ann"), ("x-data-bin", b"\0")]) == ["RESOURCE_EXHAUSTED"]
        assert server.codes(3, metadata=[("x-user", "bob"), ("x-plan", "pro")]) == ["OK", "OK", "RESOURCE_EXHAUSTED"]
    assert (seen[0].method, seen[0].message) == ("/echo.Echo/Unary", b"hi")
    assert next(rpc.message for rpc in seen if rpc.method.endswith("Collect")) is None
