"""Request lines and addresses, as servers write them."""

from __future__ import annotations

import pytest

from headgate.lab.logs.formats.requests import client_of, method_and_path, unescaped

pytestmark = pytest.mark.engineless


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("/plain", "/plain"),
        (r"a\x22b\x5Cc", 'a"b\\c'),
        (r"\"\\\n\t", '"\\\n\t'),
        (r"\\x22", r"\x22"),
        (r"\xC3\xBC\xff", "ü" + r"\xff"),
        (r"\q\x2", r"\q\x2"),
        ("\\", "\\"),
    ],
)
def test_escapes(written, meant):
    """Escapes are read from the left, once; bytes that are no UTF-8 and unknown escapes stay as they are written."""
    assert unescaped(written) == meant


@pytest.mark.parametrize(
    ("line", "parts"),
    [
        ("GET /a?b HTTP/1.1", ("GET", "/a?b")),
        ("GET /", ("GET", "/")),
        ("M-SEARCH * HTTP/1.1", ("M-SEARCH", "*")),
        ("get  HTTP/1.1", ("", "")),
        ("CONNECT example.com:443 HTTP/1.1", ("CONNECT", "example.com:443")),
        ("GET https://a.example HTTP/1.1", ("GET", "/")),
        ("GET https://a.example?q=/x HTTP/2.0", ("GET", "/?q=/x")),
        ("GET /a b HTTP/1.1", ("GET", "/a b")),
        ("-", ("", "")),
        ("", ("", "")),
        ("- http://www.example.com:80- ", ("", "")),
        (r"\x16\x03\x01", ("", "")),
        ("GET", ("", "")),
    ],
)
def test_request_lines(line, parts):
    """A line that names a method and a target has both, the target without a host; any other line has neither."""
    assert method_and_path(line) == parts


@pytest.mark.parametrize(
    ("addresses", "client"),
    [
        ("192.0.2.1", "192.0.2.1"),
        ("192.0.2.1:80", "192.0.2.1"),
        ("2001:db8::1", "2001:db8::1"),
        ("[2001:db8::1]:80", "2001:db8::1"),
        ("[2001:db8::1]", "2001:db8::1"),
        ("1.1.1.1, 192.0.2.1:80", "192.0.2.1"),
        ("unknown,", "-"),
        ("-", "-"),
    ],
)
def test_clients(addresses, client):
    """The client is the last of several addresses, without port and brackets."""
    assert client_of(addresses) == client
