"""Networks, prefixes, and the one way to write an address."""

from __future__ import annotations

import re

import pytest

from headgate import InvalidCall
from headgate.policy import Networks, Proxies, counted
from headgate.policy.address import read_address
from tests.policy.test_address import PEER, TEN

pytestmark = pytest.mark.engineless


@pytest.mark.parametrize(
    "text",
    [
        "", " ", ".", ":", "1.2.3", "1.2.3.4.5", "256.1.1.1", "010.0.0.1", "10.0.0.01", "0x7f.1", "0x7f.0.0.1",
        "2130706433", "127.1", "-1.2.3.4", "+1.2.3.4", "1.2.3.4 ", " 1.2.3.4", "1.2.3.4\n", "1.2.3.4\x00",
        "1.2.3.4/32", "1.2.3.4%eth0", "\uff11.\uff12.\uff13.\uff14", "\u0661.2.3.4", "1\u30022.3.4", "1.2.3.4:80",
        "[::1]", "::1%", "::1%\n", "::1%\xe9", "::1/128", ":::", "1::2::3", "::12345", "::g", "1:2:3:4:5:6:7",
        "1:2:3:4:5:6:7:8:9", "::ffff:010.0.0.1", "::ffff:1.2.3", "::\uff11", "\udc80", "::\udc80", "::1\x00",
        "localhost", "unknown", "_hidden", "1" * 1000, "::1%" + "z" * 99,
    ],
)  # fmt: skip
def test_there_is_one_way_to_write_an_address(text):
    """A text that two readers take for two hosts is no address."""
    assert read_address(text) is None
    assert text not in Networks(["0.0.0.0/0", "::/0"])
    with pytest.raises(InvalidCall, match="is not an IP address; write for instance"):
        counted(text)


def test_a_system_that_reads_octal_changes_nothing(monkeypatch):
    """Some readers take 010.0.0.1 for 8.0.0.1; here it is refused all the same."""
    monkeypatch.setattr("headgate.policy.address.inet_pton", lambda family, text: bytes([8, 0, 0, 1]))
    assert read_address("010.0.0.1") is None
    assert read_address("0x8.0.0.1") is None


@pytest.mark.parametrize(
    "entry",
    [
        "1.2.3.4:", "1.2.3.4:x", "1.2.3.4:123456", "1.2.3.4:\uff11", "[1.2.3.4]", "[1.2.3.4]:80", "[::1", "::1]",
        "[]", "[]:1", "[::1]80", "[::1]:", "[[::1]]", "[::1]:80:80", '"1.2.3.4"', "\xa01.2.3.4", "1.2.3.4\r",
        "[::1] :80", "[::1%" + "z" * 99 + "]",
    ],
)  # fmt: skip
def test_a_port_is_digits_and_brackets_are_for_ipv6(entry):
    """An entry that is nearly an address is none."""
    assert Proxies(TEN).client(PEER, [f"6.6.6.6, {entry}"]) == PEER


@pytest.mark.parametrize(
    ("address", "prefix", "as_"),
    [
        ("203.0.113.9", 64, "203.0.113.9"), ("203.0.113.9", 1, "203.0.113.9"),
        ("2001:db8:1:2:3:4:5:6", 64, "2001:db8:1:2::/64"), ("2001:DB8:0001:2::", 64, "2001:db8:1:2::/64"),
        ("2001:db8:1:2:3:4:5:6", 48, "2001:db8:1::/48"), ("2001:db8:1:2ff:3:4:5:6", 56, "2001:db8:1:200::/56"),
        ("2001:db8:1:2:3:4:5:6", 128, "2001:db8:1:2:3:4:5:6/128"), ("::1", 64, "::/64"), ("::1", 128, "::1/128"),
        ("fe80::1%eth0", 64, "fe80::/64"), ("fe80::1%12", 128, "fe80::1/128"),
        ("::ffff:203.0.113.9", 64, "203.0.113.9"), ("::FFFF:cb00:7109", 64, "203.0.113.9"),
        ("::ffff:203.0.113.9%eth0", 64, "203.0.113.9"), ("64:ff9b::203.0.113.9", 64, "203.0.113.9"),
        ("64:ff9b::cb00:7109", 128, "203.0.113.9"), ("64:ff9b::", 64, "0.0.0.0"),
        ("64:ff9b:0:0:0:1::1", 64, "64:ff9b::/64"), ("64:ff9b:1::203.0.113.9", 64, "64:ff9b:1::/64"),
        ("::203.0.113.9", 128, "::cb00:7109/128"), ("1:0:0:2:0:0:3:4", 128, "1::2:0:0:3:4/128"),
    ],
)  # fmt: skip
def test_ipv6_is_counted_by_network_and_ipv4_by_address(address, prefix, as_):
    """A customer's /64 is one client; IPv4 inside of IPv6 is unpacked before it is cut."""
    assert counted(address, prefix) == as_
    if prefix == 64:
        assert counted(address) == as_


def test_networks_hold_addresses_of_both_families():
    """Networks of any length, addresses in any spelling; what is no address is in none."""
    networks = Networks(["10.0.0.0/8", "192.0.2.1", "2001:db8::/32", "::ffff:172.16.0.0/108"])
    inside = ["10.255.0.1", "192.0.2.1", "::ffff:10.0.0.1", "2001:DB8:ffff::1", "2001:db8::%eth0", "172.31.0.1"]
    outside = ["11.0.0.0", "192.0.2.2", "2001:db9::", "172.32.0.1", "::a00:1", "", "10.0.0.0/8", None, b"10.0.0.1"]
    assert all(address in networks for address in inside)
    assert not any(address in networks for address in outside)
    assert networks.networks == ("10.0.0.0/8", "192.0.2.1/32", "2001:db8::/32", "172.16.0.0/12")
    assert "203.0.113.9" in Networks(["0.0.0.0/0"]) and "::1" not in Networks(["0.0.0.0/0"])
    assert "10.0.0.1" not in Networks()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"trusted": ["10.0.0.0/33"]}, r"'10.0.0.0/33' is not a network or an address; write it as 10.0.0.0/8"),
        ({"trusted": ["10.0.0.1/8"]}, r"10.0.0.1/8 has bits set beyond its prefix; write 10.0.0.0/8, or 10.0.0.1 for"),
        ({"trusted": [167772160]}, "167772160 is not a network or an address"),
        ({"trusted": ["x" * 1000]}, r"\.\.\. is not a network"),
        ({"trusted": "10.0.0.0/8"}, "networks must be a list, such as .* got '10.0.0.0/8'"),
        ({"trusted": None}, "networks must be a list, such as .* got None"),
        ({"trusted": ["0.0.0.0/0"]}, "0.0.0.0/0 trusts every address, so a client could claim to be any other"),
        ({"trusted": ["::ffff:0:0/96"]}, "0.0.0.0/0 trusts every address"),
        ({"hops": -1}, "hops must be the number of proxies, from 0 to 64; got -1"),
        ({"hops": True}, "from 0 to 64; got True"),
        ({"hops": 1, "trusted": TEN}, "or hops, not both"),
        ({"header": "X-Client"}, "the proxies write, x-forwarded-for or forwarded or cf-connecting-ip"),
        ({"header": None}, "the proxies write, x-forwarded-for or forwarded"),
    ],
)  # fmt: skip
def test_a_mistake_in_the_configuration_is_shown(given, said):
    """The message has the input and what would have been right."""
    with pytest.raises(InvalidCall, match=said):
        Proxies(**given)


@pytest.mark.parametrize(
    "network", ["*", "", "010.0.0.0/8", "10.0.0.0/255.0.0.0", "10.0.0.0/", "fe80::%e/64", "::/129"]
)
def test_a_network_is_an_address_and_a_number_of_bits(network):
    """No stars, no masks, no zones."""
    with pytest.raises(InvalidCall, match=f"{re.escape(repr(network))} is not a network or an address"):
        Networks(["10.0.0.0/8", network])


@pytest.mark.parametrize("prefix", [0, 129, -1, "64", None, 64.5])
def test_a_prefix_has_1_to_128_bits(prefix):
    """Nobody is counted together with everyone."""
    with pytest.raises(InvalidCall, match="ipv6_prefix must be a number of bits from 1 to 128"):
        counted("2001:db8::1", prefix)


@pytest.mark.parametrize(
    ("address", "ipv4", "ipv6", "key"),
    [
        ("203.0.113.77", 24, 64, "203.0.113.0/24"),
        ("203.0.113.77", 32, 64, "203.0.113.77"),
        ("::ffff:203.0.113.77", 16, 64, "203.0.0.0/16"),
        ("64:ff9b::203.0.113.77", 24, 64, "203.0.113.0/24"),
        ("2001:db8:1:2:3::4", 24, 56, "2001:db8:1::/56"),
        ("2001:db8:1:2:3::4", 32, 128, "2001:db8:1:2:3::4/128"),
    ],
)
def test_both_prefix_lengths_can_be_chosen(address, ipv4, ipv6, key):
    """An address is counted by its network, of IPv4 and of IPv6; IPv4 inside IPv6 is counted as IPv4."""
    assert counted(address, ipv6, ipv4) == key


@pytest.mark.parametrize("prefix", [0, 33, -1, True, 24.0, "24"])
def test_an_ipv4_prefix_is_a_number_of_bits(prefix):
    """A prefix outside of 1 to 32 is an error."""
    with pytest.raises(InvalidCall, match="ipv4_prefix must be a number of bits from 1 to 32"):
        counted("203.0.113.7", ipv4_prefix=prefix)
