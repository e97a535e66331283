"""A Redis store over TLS: the certificate is for the name in the URL, whatever address that stands for."""

from __future__ import annotations

import asyncio
import datetime
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest

from headgate import StoreError
from tests.support.proxy import Proxy
from tests.support.servers import Server, free_port
from tests.support.unreachable import NAME, PATIENTLY, WAYS, opened

pytest.importorskip("cryptography")
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

pytestmark = pytest.mark.engineless


class Encrypted(Proxy):
    """Takes TLS from clients, and talks to the server without."""

    def __init__(self, server: Server, certificate: Path) -> None:
        super().__init__(server)
        self._context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self._context.load_cert_chain(certificate)

    async def _listen(self) -> None:
        self.port = free_port()
        self._listener = await asyncio.start_server(self._serve, "127.0.0.1", self.port, ssl=self._context)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of `NAME`, signed by itself, with its key."""
    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.datetime.now(datetime.UTC)
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, NAME)])
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(NAME)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    file = tmp_path_factory.mktemp("tls") / "cache.pem"
    plain = serialization.NoEncryption()
    kept = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain)
    file.write_bytes(kept + made.public_bytes(serialization.Encoding.PEM))
    return file


@pytest.fixture
def encrypted(server: Server, certificate: Path) -> Iterator[Encrypted]:
    proxy = Encrypted(server, certificate)
    with proxy:
        yield proxy


@pytest.mark.parametrize("way", WAYS)
def test_a_server_is_known_by_its_name(way, encrypted, certificate, names):
    """The certificate fits the name of the URL, on every connection."""
    url = f"rediss://{NAME}:{encrypted.port}?ssl_ca_certs={certificate}&ssl_check_hostname=true"
    with opened(way, url, "raise", **PATIENTLY) as (limiter, hang_up):
        assert [limiter.hit("k").remaining for _ in range(3)] == [9_999, 9_998, 9_997]
        hang_up()
        assert limiter.hit("k").remaining == 9_996


@pytest.mark.parametrize("way", WAYS)
def test_a_server_that_has_another_name_is_not_asked(way, encrypted, certificate):
    """A certificate for another name is a `StoreError`, and no command is sent."""
    url = f"rediss://127.0.0.1:{encrypted.port}?ssl_ca_certs={certificate}&ssl_check_hostname=true"
    with opened(way, url, "raise", **PATIENTLY) as (limiter, _), pytest.raises(StoreError):
        limiter.hit("k")
    assert encrypted.requests == 0
