"""Settings from a framework's config: `HEADGATE_STORE` and its siblings."""

from __future__ import annotations

import difflib
import os
from collections.abc import Mapping, Sequence
from typing import Any, Final

from headgate.errors import InvalidCall

PREFIX: Final = "HEADGATE_"
ENABLED: Final = "HEADGATE_ENABLED"


def settings_from(config: Mapping[Any, Any], names: Sequence[str], given: Mapping[str, Any]) -> dict[str, Any]:
    """What was given, else what the config says; None is nothing. An error shows what nobody would read."""
    known = [name.upper() for name in (*names, "enabled")]
    for name in map(str, config):
        word = name.removeprefix(PREFIX)
        if word != name and word not in known:
            near = difflib.get_close_matches(word, known, 1)
            if near or name not in os.environ:  # a config made of the whole environment has the names of others
                hint = f"did you mean {PREFIX}{near[0]}?" if near else f"there are {', '.join(known)}"
                raise InvalidCall(f"the app's config has {name}, which is no setting; {hint}")
    if not isinstance(config.get(ENABLED, True), bool):
        raise InvalidCall(f"{ENABLED} is True or False; got {config[ENABLED]!r}")
    told = {name: config.get(PREFIX + name.upper()) for name in names}
    told.update((name, value) for name, value in given.items() if value is not None)
    return {name: value for name, value in told.items() if value is not None}
