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
    """Return the arguments, completed from the config; None counts as absent. Raise for an unknown setting."""
    known = [name.upper() for name in (*names, "enabled")]
    for name in map(str, config):
        word = name.removeprefix(PREFIX)
        if word != name and word not in known:
            near = difflib.get_close_matches(word, known, 1)
            if (
                near or name not in os.environ
            ):  # a config read from the whole environment may hold settings of other programs
                hint = f"did you mean {PREFIX}{near[0]}?" if near else f"the settings are {', '.join(known)}"
                raise InvalidCall(f"unknown setting {name} in the app's config; {hint}")
    if not isinstance(config.get(ENABLED, True), bool):
        raise InvalidCall(f"{ENABLED} must be True or False; got {config[ENABLED]!r}")
    told = {name: config.get(PREFIX + name.upper()) for name in names}
    told.update((name, value) for name, value in given.items() if value is not None)
    return {name: value for name, value in told.items() if value is not None}
