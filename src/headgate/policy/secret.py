"""Secrets that a policy needs but must not contain: each is in the environment or in a file of its own."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from headgate.policy.field_types import WORD, Field, Fields
from headgate.policy.parser import Parser
from headgate.policy.source import Path_
from headgate.wording import shown

PLACES: Final[Fields] = {
    "env": Field("The name of the environment variable that contains the secret.", WORD),
    "file": Field(
        "The path of a file that contains the secret. The newline at its end is not part of the secret.", WORD
    ),
}
LARGEST: Final = 65_536
"""The most bytes of a secret."""


def read_secret(parser: Parser, value: object, path: Path_) -> bytes | None:
    """Return the secret at `{env: NAME}` or `{file: PATH}`; no message shows a value that was given instead."""
    if not isinstance(value, Mapping):
        parser.error(path, "a policy must not contain a secret: write {env: NAME} or {file: PATH}")
        return None
    given = parser.fields(value, path, PLACES)
    if len(given) != 1:
        parser.error(path, "expected {env: NAME} or {file: PATH}")
        return None
    kind, name = next(iter(given.items()))
    if not isinstance(name, str) or not name:
        parser.error((*path, kind), f"expected the name of {_WHAT[kind]}; got {shown(name)}")
        return None
    try:
        secret = os.fsencode(os.environ.get(name, "")) if kind == "env" else _in_file(name)
    except (OSError, ValueError) as reason:  # an impossible file name is a ValueError
        parser.error((*path, kind), f"cannot be read: {reason}")
        return None
    if not secret:
        empty = "is not set or is empty" if kind == "env" else "is empty"
        parser.error((*path, kind), f"{name} {empty}")
        return None
    if len(secret) > LARGEST:
        parser.error((*path, kind), f"a secret may have at most {LARGEST} bytes")
        return None
    return secret


_WHAT: Final = {"env": "an environment variable", "file": "a file"}


def _in_file(name: str) -> bytes:
    with Path(name).open("rb") as file:
        return file.read(LARGEST + 2).rstrip(b"\r\n")  # editors add a newline
