"""The client's address: the words of proxies, the inventions of clients, and the key that an address becomes."""

from __future__ import annotations

import ipaddress
import pickle

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headgate.policy import Networks, Proxies, RequestView, counted

pytestmark = pytest.mark.engineless

TEN = ["10.0.0.0/8", "::1"]
PEER, CLIENT = "10.0.0.1", "203.0.113.9"

# who connects, the lines of X-Forwarded-For, the client
X_FORWARDED_FOR = [
    # nobody is believed who is not trusted
    ("203.0.113.9", ["6.6.6.6"], "203.0.113.9"),
    ("203.0.113.9", ["6.6.6.6, 10.0.0.2"], "203.0.113.9"),
    # from the right to the first that is not trusted
    ("10.0.0.1", ["203.0.113.9"], "203.0.113.9"),
    ("10.0.0.1", ["6.6.6.6, 203.0.113.9"], "203.0.113.9"),
    ("10.0.0.1", ["6.6.6.6, 203.0.113.9, 10.0.0.2, 10.9.9.9"], "203.0.113.9"),
    ("::1", ["2001:db8::9, 10.0.0.2"], "2001:db8::9"),
    # all lines are one list
    ("10.0.0.1", ["6.6.6.6", "203.0.113.9"], "203.0.113.9"),
    ("10.0.0.1", ["6.6.6.6,203.0.113.9", "10.0.0.2,\t10.0.0.4 "], "203.0.113.9"),
    # a proxy that says nothing, or speaks of proxies alone, speaks for the last of them
    ("10.0.0.1", [], "10.0.0.1"),
    ("10.0.0.1", ["10.0.0.3, 10.0.0.2"], "10.0.0.3"),
    # what is no address ends the walk: what stands left of it may be the client's
    ("10.0.0.1", [""], "10.0.0.1"),
    ("10.0.0.1", ["6.6.6.6", ""], "10.0.0.1"),
    ("10.0.0.1", ["6.6.6.6,"], "10.0.0.1"),
    ("10.0.0.1", ["6.6.6.6, , 10.0.0.2"], "10.0.0.2"),
    ("10.0.0.1", ["6.6.6.6, unknown"], "10.0.0.1"),
    ("10.0.0.1", ["6.6.6.6, unix:, 10.0.0.2"], "10.0.0.2"),
    ("10.0.0.1", ["6.6.6.6, garbage, 10.0.0.3, 10.0.0.2"], "10.0.0.3"),
    ("10.0.0.1", ["6.6.6.6 203.0.113.9"], "10.0.0.1"),
    ("10.0.0.1", ["for=6.6.6.6"], "10.0.0.1"),
    # garbage of the client's does no harm to what a proxy adds
    ("10.0.0.1", ['",;=\\"\x00\r\n, 203.0.113.9'], "203.0.113.9"),
    ("10.0.0.1", ["\x00" * 100_000, "203.0.113.9"], "203.0.113.9"),
    # ports and brackets
    ("10.0.0.1", ["203.0.113.9:567"], "203.0.113.9"),
    ("10.0.0.1", ["6.6.6.6, [2001:DB8::9]:80, 10.0.0.2:4711"], "2001:db8::9"),
    ("10.0.0.1", ["[2001:db8::9]"], "2001:db8::9"),
    # IPv4 in IPv6 clothes is IPv4, whoever wears it
    ("::ffff:10.0.0.1", ["203.0.113.9"], "203.0.113.9"),
    ("::ffff:a00:1", ["6.6.6.6, ::ffff:203.0.113.9, [0:0:0:0:0:FFFF:0a00:0002]:1"], "203.0.113.9"),
    ("::ffff:203.0.113.9", ["6.6.6.6"], "203.0.113.9"),
    # ... but only those that mean the same host
    ("::10.0.0.1", ["6.6.6.6"], "::a00:1"),
    ("::ffff:0:10.0.0.1", ["6.6.6.6"], "::ffff:0:a00:1"),
    ("64:ff9b::10.0.0.1", ["6.6.6.6"], "64:ff9b::a00:1"),
    ("2002:a00:1::", ["6.6.6.6"], "2002:a00:1::"),
    # nobody: no address, and unix is not trusted; or what a server made up
    (None, ["6.6.6.6"], None),
    ("", ["6.6.6.6"], None),
    ("testclient", ["6.6.6.6"], None),
]

# the lines of Forwarded, sent by 10.0.0.1; the client
FORWARDED = [
    # RFC 7239, sections 4 and 7
    (['for="_gazonk"'], PEER),
    (['For="[2001:db8:cafe::17]:4711"'], "2001:db8:cafe::17"),
    (["for=192.0.2.60;proto=http;by=203.0.113.43"], "192.0.2.60"),
    (["for=192.0.2.43, for=198.51.100.17"], "198.51.100.17"),
    (["for=_hidden, for=_SEVKISEK"], PEER),
    (['for=192.0.2.43, for="[2001:db8:cafe::17]"'], "2001:db8:cafe::17"),
    (["for=192.0.2.43", 'for="[2001:db8:cafe::17]", for=unknown'], PEER),
    (["for=192.0.2.43, for=10.0.0.2;by=10.0.0.1;proto=http;host=example.com"], "192.0.2.43"),
    # one node, in the shapes it has
    (['for="192.0.2.43:47011"'], "192.0.2.43"),
    (['for="192.0.2.43:_port", for=10.0.0.2:47011'], "192.0.2.43"),
    (["for=[2001:db8::17]"], "2001:db8::17"),
    (["proto=https ; FOR=192.0.2.43;; by=_me;"], "192.0.2.43"),
    (['for="::ffff:10.0.0.2", for=10.0.0.3'], "10.0.0.2"),
    (["for=6.6.6.6, proto=https"], PEER),
    (["for=6.6.6.6, for=unknown, for=10.0.0.2"], "10.0.0.2"),
    # a comma, a semicolon or a quote in quotes is none
    (['for=192.0.2.43;host="a,for=6.6.6.6"'], "192.0.2.43"),
    (['for=192.0.2.43;host="a,for=6.6.6.6;x=",for=10.0.0.2'], "192.0.2.43"),
    ([r'for=192.0.2.43;host="a\",for=6.6.6.6;x=\""'], "192.0.2.43"),
    ([r'for=192.0.2.43;host="\\";x="\\\",for=6.6.6.6"'], "192.0.2.43"),
    # quotes that a client leaves open swallow nothing that a proxy adds
    (['for="', "for=192.0.2.43"], "192.0.2.43"),
    (['for=6.6.6.6;x=", for=192.0.2.43'], "192.0.2.43"),
    (['for=6.6.6.6;x=", for="[2001:db8::17]"'], "2001:db8::17"),
    ([r'for=6.6.6.6;x="\, for="192.0.2.43:80";host="a,b"'], "192.0.2.43"),
]
MALFORMED = [
    "for=6.6.6.6;for=192.0.2.43", "for=192.0.2.43;For=192.0.2.43", "for = 192.0.2.43", "for=192.0.2.43 proto=http",
    "for=192.0.2.43;proto", "for=", 'for=""', 'for="192.0.2.43', 'for=192.0.2.43"', 'for="192.0.2.43"x', "192.0.2.43",
    r'for="192\.0.2.43"', "proto=https;by=10.0.0.1", "for=192.0.2.43\n", ";" * 9000, " " * 8000 + "\x01",
    "for=192.0.2.43" + ";" * 16,
]  # fmt: skip


@pytest.mark.parametrize(("peer", "lines", "client"), X_FORWARDED_FOR)
def test_x_forwarded_for_is_read_from_the_right_while_it_is_trusted(peer, lines, client):
    """The peer first; then what trusted proxies wrote; never what the client wrote."""
    assert Proxies(TEN).client(peer, lines) == client


@pytest.mark.parametrize(("lines", "client"), FORWARDED + [([line], PEER) for line in MALFORMED])
def test_forwarded_is_read_as_rfc_7239_writes_it(lines, client):
    """The same walk over `Forwarded`, with its quotes, its hidden names and the ways to abuse them."""
    assert Proxies(TEN, header="forwarded").client(PEER, lines) == client


def test_only_one_header_is_believed():
    """A proxy passes on, as the client wrote it, the header that it does not write itself."""
    for header, other in (
        ("x-forwarded-for", "forwarded"),
        ("forwarded", "x-forwarded-for"),
        ("x-real-ip", "forwarded"),
    ):
        sent = {other: ["for=6.6.6.6" if other == "forwarded" else "6.6.6.6"]}
        assert RequestView("GET", "/", sent, PEER, Proxies(TEN, header=header)).client == PEER


@pytest.mark.parametrize(
    ("hops", "lines", "client"),
    [
        (0, ["203.0.113.9"], PEER), (1, [], PEER), (1, ["203.0.113.9"], CLIENT), (1, ["6.6.6.6, 203.0.113.9"], CLIENT),
        (1, ["203.0.113.9, 10.0.0.2"], "10.0.0.2"), (2, ["198.51.100.7"], "198.51.100.7"),
        (2, ["6.6.6.6, 203.0.113.9", "198.51.100.7:80"], CLIENT), (2, ["6.6.6.6, 203.0.113.9, "], PEER),
        (2, ["6.6.6.6, unknown, 198.51.100.7"], "198.51.100.7"),
        (64, [",".join(f"10.0.0.{n}" for n in range(100, 0, -1))], "10.0.0.64"),
    ],
)  # fmt: skip
def test_hops_count_entries_from_the_right(hops, lines, client):
    """Exactly `proxy_hops` proxies are trusted, whatever their addresses are."""
    assert Proxies(hops=hops).client(PEER, lines) == client


def test_the_peer_of_a_unix_socket_is_trusted_by_name():
    """It has no address. Without a word from it there is nobody, and nobody is None."""
    unix = Proxies(["unix", "10.0.0.0/8"])
    assert unix.client(None, ["6.6.6.6, 203.0.113.9"]) == CLIENT
    assert unix.client("", ["203.0.113.9, 10.0.0.2"]) == CLIENT
    assert unix.client(None, []) is None
    assert unix.client(None, ["6.6.6.6, unix:"]) is None
    assert unix.client("unix", ["6.6.6.6"]) is None
    assert Proxies(hops=1).client(None, ["203.0.113.9"]) == CLIENT
    assert Proxies(hops=1).client("localhost", ["203.0.113.9"]) == CLIENT


def test_trusts_says_whether_a_peer_is_believed():
    """A peer is believed by its address, as a unix socket, or by hops, which believe every peer."""
    ten, unix, hops = Proxies(TEN), Proxies(["unix"]), Proxies(hops=1)
    peers = ["10.0.0.1", "::ffff:10.0.0.1", "0:0::1%lo", "11.0.0.1", "garbage", None, ""]
    assert [ten.trusts(peer) for peer in peers] == [True, True, True, False, False, False, False]
    assert [unix.trusts(peer) for peer in peers] == [False] * 5 + [True, True]
    assert all(hops.trusts(peer) for peer in peers)


def test_proxies_are_a_value():
    """Nothing about them changes once they are made, and they travel to other processes."""
    proxies = Proxies(iter(TEN), header="forwarded")
    assert repr(proxies) == "Proxies(trusted=('10.0.0.0/8', '::1'), hops=0, header='forwarded')"
    with pytest.raises(AttributeError):
        proxies.hops = 1  # type: ignore[misc]
    assert pickle.loads(pickle.dumps(proxies)).client(PEER, ["for=203.0.113.9"]) == CLIENT


@pytest.mark.parametrize("header", ["x-forwarded-for", "forwarded"])
def test_only_the_end_of_a_header_is_read(header):
    """The last 64 entries, the last 8192 characters; an entry that was cut is not read."""
    name = "for=" if header == "forwarded" else ""

    def client(lines):
        return Proxies(TEN, header=header).client(PEER, lines)

    many = [f"{name}203.0.113.9"] + [f"{name}10.0.0.{n % 250}" for n in range(5000, 0, -1)]
    assert client(many) == client([",".join(many)]) == "10.0.0.64"
    assert client([",".join(many[-63:])]) == "10.0.0.63"
    assert client([",".join(many[-65:])]) == "10.0.0.64"
    for length in range(8180, 8200):
        far, near = f"{name}110.0.0.3", f"{name}10.0.0.2".rjust(length - len(f"{name}110.0.0.3,"))
        expected = "110.0.0.3" if length <= 8192 else "10.0.0.2"
        assert client([f"{far},{near}"]) == client([far, near]) == expected
    assert client(["6.6.6.6", f"{name}6.6.6.6," + f"{name}10.0.0.2".rjust(100_000)]) == PEER


addresses = st.ip_addresses().map(str)
proxies_ = st.integers(0, 2**24 - 1).map(lambda n: str(ipaddress.IPv4Address(0x0A000000 + n)))
clients = addresses.filter(lambda text: text not in Networks(TEN))
hostile = st.text(st.sampled_from('",;=\\ \t:[]%.1f\x00\n\xff\uff11'), max_size=60) | st.text(max_size=60)
entries = st.one_of(addresses, hostile, st.sampled_from(["unknown", "_x", 'for="[::1]:80"', "for=10.0.0.2", 'for="']))
headers = st.lists(st.lists(entries, max_size=5).map(",".join), max_size=4)


@given(st.none() | entries, headers, st.sampled_from(["x-forwarded-for", "forwarded"]), st.integers(0, 3))
def test_the_answer_is_nobody_or_an_address(peer, lines, header, hops):
    """Nothing in a header is an error, and nothing but an address, in its one spelling, comes out."""
    for proxies in (Proxies(hops=hops, header=header), Proxies([*TEN, "unix"], header=header)):
        client = proxies.client(peer, lines)
        assert client is None or client == str(ipaddress.ip_address(client))
        assert client is None or counted(client)


@given(addresses, headers, headers)
def test_without_proxies_the_peer_is_the_client(peer, forwarded, x_forwarded_for):
    """Headers count for nothing then."""
    expected = ipaddress.ip_address(peer)
    client = Proxies().client(peer, [*forwarded, *x_forwarded_for])
    assert client == str(getattr(expected, "ipv4_mapped", None) or expected)


def quoted(text):
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def element(node, host):
    return f"for={quoted(f'[{node}]') if ':' in node else node};host={quoted(host)};proto=https"


hosts = st.text(st.sampled_from('",;=\\ \xe9for6.'), max_size=30)


@given(headers, clients, st.lists(st.tuples(proxies_, hosts), max_size=4), hosts, st.booleans())
@example(['for=6.6.6.6;x="'], CLIENT, [("10.0.0.2", ";y=z")], "a,for=6.6.6.6;x=", True)
@example(['for=6.6.6.6;x="\\'], CLIENT, [], '\\",for=6.6.6.6', True)
def test_nothing_a_client_writes_moves_what_proxies_add(claims, client, chain, host, same_line):
    """Any beginning of the header, on the same line or others, and any Host that proxies quote: the answer stays."""
    expected = Proxies().client(client, [])
    plain = [client, *(proxy for proxy, _ in chain)]
    rich = [element(client, host), *(element(proxy, its) for proxy, its in chain)]
    for header, added in (("x-forwarded-for", plain), ("forwarded", rich)):
        lines = [", ".join([*claims, *added])] if same_line else [*claims, *added]
        assert Proxies(TEN, header=header).client(PEER, lines) == expected
        assert Proxies(hops=len(added), header=header).client(PEER, lines) == expected
