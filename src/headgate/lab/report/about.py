"""The origin of a result: the command, the seed, the time and the versions."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from dataclasses import dataclass

from headgate.engine import NATIVE
from headgate.version import __version__


@dataclass(frozen=True, slots=True)
class About:
    """The origin of a result, for readers that want to have it again."""

    command: str
    seed: int | None
    """The seed of made traffic; None for a log, which has no chance in it."""
    made: str
    """The time at which the report was made, as the reader shall see it."""
    versions: Mapping[str, str]
    """The versions in use, by name, in the order in which they are shown."""


def versions() -> dict[str, str]:
    """Return the versions in this process."""
    python = f"{platform.python_implementation()} {platform.python_version()}"
    return {"headgate": __version__, "Python": python, "engine": "native" if NATIVE else "pure"}
