"""Keys that verify tokens: secrets, public keys in files, and the mistakes that a policy tells at once."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from tests.policy.test_tokens import RSA, SECRET, _secret, claims, jwt, mistakes, pem, signed  # noqa: F401 - a fixture

pytest.importorskip("cryptography")
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

pytestmark = pytest.mark.engineless

KEYS: dict[str, tuple[Callable[[], Any], list[str]]] = {
    "RSA": (
        lambda: rsa.generate_private_key(public_exponent=65537, key_size=2048),
        ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512"],
    ),
    "P-256": (lambda: ec.generate_private_key(ec.SECP256R1()), ["ES256"]),
    "P-384": (lambda: ec.generate_private_key(ec.SECP384R1()), ["ES384"]),
    "P-521": (lambda: ec.generate_private_key(ec.SECP521R1()), ["ES512"]),
    "Ed25519": (ed25519.Ed25519PrivateKey.generate, ["EdDSA"]),
}


@pytest.mark.parametrize("kind", KEYS)
def test_public_keys_verify_from_a_file(tmp_path, kind):
    """Each algorithm that is listed, and what another key of the kind has signed is not believed."""
    make, algorithms = KEYS[kind]
    key = make()
    where = files(tmp_path, pem(key))
    for algorithm in algorithms:
        told = [claims(signed(key=by, algorithm=algorithm), key=where, algorithms=algorithms) for by in (key, make())]
        assert told == [{"sub": "ann"}, None]


def test_an_algorithm_that_is_not_listed_is_not_believed(tmp_path):
    """Although the key could."""
    where = files(tmp_path, pem(RSA))
    token = signed(key=RSA, algorithm="RS384")
    assert [claims(token, key=where, algorithms=each) for each in (["RS256"], "RS384")] == [None, {"sub": "ann"}]


def test_a_secret_may_end_with_a_line(tmp_path):
    """As editors and `echo` write files."""
    file = tmp_path / "secret"
    file.write_text(f"{SECRET}\r\n")
    assert claims(signed(), key={"file": str(file)}) == {"sub": "ann"}


def files(folder: Any, data: bytes) -> dict[str, str]:
    file = folder / "key"
    file.write_bytes(data)
    return {"file": str(file)}


SMALL = "RS256 needs a key of 2048 bits or more; this one has 1024"


PRIVATE = "this is a private key: give the public key, which is enough to verify tokens"


@pytest.mark.parametrize(
    ("data", "algorithms", "said"),
    [
        (lambda: pem(RSA), "HS256", "this is not a key for HS256, which takes a secret, not a key in PEM"),
        (lambda: b"x" * 64, "RS256", "this is not a key for RS256, which takes a public key in PEM"),
        (lambda: b"x" * 64, "ES256", "this is not a key for ES256, which takes a public key in PEM"),
        (lambda: b"\xff" * 64, "EdDSA", "this is not a key for EdDSA, which takes a public key in PEM"),
        (lambda: pem(RSA), ["RS256", "ES256"], "this is not a key for ES256, which takes a public key in PEM"),
        (lambda: b"x" * 31, "HS256", "HS256 needs a secret of 32 bytes or more; this one has 31"),
        (lambda: b"x" * 32, ["HS256", "HS512"], "HS512 needs a secret of 64 bytes or more; this one has 32"),
        (lambda: pem(rsa.generate_private_key(public_exponent=65537, key_size=1024)), "RS256", SMALL),
        (
            lambda: RSA.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.TraditionalOpenSSL,
                serialization.NoEncryption(),
            ),
            "RS256",
            PRIVATE,
        ),
    ],
)
def test_a_key_that_is_none_is_a_mistake_at_once(tmp_path, data, algorithms, said):
    """The mistake is told at once, not by tokens that are never believed; and the file's content is not shown."""
    assert mistakes(key=files(tmp_path, data()), algorithms=algorithms) == [f"tokens.key: {said}"]


def test_a_missing_library_is_told(monkeypatch):
    """With what to install; also where PyJWT is there and the library that it needs for public keys is not."""
    how = "pip install '.[jwt]' in a clone of Headgate, or pip install 'PyJWT[crypto]'"
    needs = f"tokens: verifying tokens needs PyJWT: {how}"
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "jwt", None)
        assert mistakes() == [needs]

    def missing(name: str) -> Any:
        raise NotImplementedError(name)

    monkeypatch.setattr(jwt, "get_algorithm_by_name", missing)
    assert mistakes() == [needs]


def test_a_policy_without_tokens_needs_no_library():
    """The core imports nothing."""
    code = (
        "import sys; from headgate.policy import Policy; "
        "Policy({'rules': [{'key': {'claim': 'a'}, 'limits': '1/s'}]}); print('jwt' in sys.modules)"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout == "False\n"
