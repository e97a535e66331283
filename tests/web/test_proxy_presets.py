"""The usual proxies of docs/web/proxies.md: headers as their vendors describe them, and those that a client forges."""

from __future__ import annotations

from typing import Any

import pytest

from headgate.policy import RequestView
from headgate.web.options import WebOptions

CLIENT = "203.0.113.9"
FORGED = "6.6.6.6"
PRESETS: dict[str, tuple[dict[str, Any], str]] = {
    "cloudflare": (
        {"forwarded_header": "cf-connecting-ip", "trusted_proxies": ["173.245.48.0/20", "2400:cb00::/32"]},
        "173.245.48.9",
    ),
    "akamai": ({"forwarded_header": "true-client-ip", "trusted_proxies": ["23.32.0.0/11"]}, "23.33.1.1"),
    "fly": ({"forwarded_header": "fly-client-ip", "trusted_proxies": ["172.16.0.0/12", "fdaa::/16"]}, "172.19.0.1"),
    "heroku": ({"proxy_hops": 1}, "10.1.2.3"),
    "ingress-nginx": ({"forwarded_header": "X-Real-IP", "trusted_proxies": ["10.244.0.0/16"]}, "10.244.1.17"),
    "alb": ({"trusted_proxies": ["10.0.0.0/16"]}, "10.0.3.4"),
    "vercel": ({"proxy_hops": 1}, "127.0.0.1"),
    "google": ({"proxy_hops": 2}, "35.191.0.9"),
    "fastly": ({"trusted_proxies": ["151.101.0.0/16", "199.232.0.0/16"]}, "151.101.1.1"),
    "nginx": ({"forwarded_header": "x-real-ip", "trusted_proxies": ["127.0.0.1", "unix"]}, "127.0.0.1"),
}
SENT: list[tuple[str, dict[str, str]]] = [
    ("cloudflare", {"cf-connecting-ip": CLIENT, "x-forwarded-for": CLIENT, "cf-ray": "8f1-FRA", "cf-ipcountry": "DE"}),
    ("cloudflare", {"cf-connecting-ip": CLIENT, "x-forwarded-for": f"{FORGED},{CLIENT}", "cdn-loop": "cloudflare"}),
    ("akamai", {"true-client-ip": CLIENT, "x-forwarded-for": f"{FORGED}, {CLIENT}, 23.40.0.1"}),
    ("cloudflare", {"cf-connecting-ip": CLIENT, "true-client-ip": FORGED}),  # passed on while its transform is off
    ("fly", {"fly-client-ip": CLIENT, "x-forwarded-for": f"{CLIENT}, 66.241.125.1", "fly-forwarded-port": "443"}),
    ("heroku", {"x-forwarded-for": CLIENT, "x-forwarded-proto": "https", "via": "1.1 heroku-router"}),
    ("heroku", {"x-forwarded-for": f"{FORGED}, {CLIENT}", "x-request-start": "1700000000000"}),
    ("ingress-nginx", {"x-real-ip": CLIENT, "x-forwarded-for": CLIENT, "x-original-forwarded-for": FORGED}),
    ("alb", {"x-forwarded-for": CLIENT, "x-amzn-trace-id": "Root=1-67891233-abcdef012345678912345678"}),
    ("alb", {"x-forwarded-for": f"{FORGED}, {CLIENT}", "x-forwarded-port": "443"}),
    ("alb", {"x-forwarded-for": f"{FORGED}, {CLIENT}:54321"}),
    ("vercel", {"x-forwarded-for": CLIENT, "x-real-ip": CLIENT, "x-vercel-id": "fra1::iad1::abc"}),
    ("google", {"x-forwarded-for": f"{CLIENT},34.120.1.1", "via": "1.1 google"}),
    ("google", {"x-forwarded-for": f"what ever,{FORGED},{CLIENT},34.120.1.1"}),
    ("fastly", {"x-forwarded-for": CLIENT, "fastly-client-ip": FORGED}),
    ("fastly", {"x-forwarded-for": f"{FORGED}, {CLIENT}, 199.232.1.1", "fastly-client-ip": CLIENT}),
    ("nginx", {"x-real-ip": CLIENT, "x-forwarded-for": f"{FORGED}, {CLIENT}"}),
]


def client(preset: str, headers: dict[str, Any], peer: str | None = None) -> str | None:
    options, proxy = PRESETS[preset]
    lines = {name: value if isinstance(value, list) else [value] for name, value in headers.items()}
    return RequestView("GET", "/", lines, peer or proxy, WebOptions(**options).proxies).client


@pytest.mark.parametrize(("preset", "headers"), SENT)
def test_the_client_is_the_one_that_the_proxy_saw(preset, headers):
    """Each proxy names the client in the header of its preset, whatever the client wrote into other headers."""
    assert client(preset, headers) == CLIENT


@pytest.mark.parametrize(("preset", "headers"), [each for each in SENT if "proxy_hops" not in PRESETS[each[0]][0]])
def test_a_client_that_goes_around_the_proxy_is_its_own_address(preset, headers):
    """The same headers from a peer that is not trusted count for nothing."""
    assert client(preset, headers, "198.51.100.7") == "198.51.100.7"


@pytest.mark.parametrize("preset", [name for name, (options, _) in PRESETS.items() if "forwarded_header" in options])
def test_what_is_not_one_address_counts_as_the_proxy(preset):
    """A list, two lines, a name, nothing and garbage in a header of one address: the peer is the client."""
    options, proxy = PRESETS[preset]
    header = options["forwarded_header"].lower()
    odd: list[Any] = [
        f"{FORGED}, {CLIENT}", [FORGED, CLIENT], [CLIENT, CLIENT], "unknown", "", " ", "localhost", "\x00",
        f"{CLIENT}\x00", "999.1.1.1", "0x7f.1", "1" * 10_000, "::ffff:", "[::1", f"for={CLIENT}",
    ]  # fmt: skip
    for said in odd:
        assert client(preset, {header: said, "x-forwarded-for": FORGED}) == proxy, said
    assert client(preset, {"x-forwarded-for": FORGED, "forwarded": f"for={FORGED}"}) == proxy
    assert client(preset, {header: " 2001:DB8::1 "}) == "2001:db8::1"


def test_an_address_may_have_a_port():
    """A balancer of AWS adds the port of the client, and brackets around an address of IPv6."""
    assert client("alb", {"x-forwarded-for": f"{FORGED}, 12.34.56.78:8080"}) == "12.34.56.78"
    assert client("alb", {"x-forwarded-for": "[2001:db8:85a3:8d3:1319:8a2e:370:7348]:8080"}) == (
        "2001:db8:85a3:8d3:1319:8a2e:370:7348"
    )


def test_a_pseudo_address_counts_as_the_client():
    """Cloudflare may put an address of class E in place of an IPv6 address."""
    sent = {"cf-connecting-ip": "240.16.0.1", "cf-connecting-ipv6": "2001:db8::1"}
    assert client("cloudflare", sent) == "240.16.0.1"


def test_heroku_counts_only_what_its_router_added():
    """The last entry is that of Router 2.0, however many a client has sent before it, in one line or several."""
    assert client("heroku", {"x-forwarded-for": [FORGED, "7.7.7.7, 8.8.8.8", CLIENT]}) == CLIENT
    assert client("heroku", {}) == "10.1.2.3"
