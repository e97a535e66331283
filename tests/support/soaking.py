"""How long the soak runs, and what its chance begins with."""

from __future__ import annotations

import os
import random
from typing import Final

SECONDS: Final = float(os.environ.get("SOAK_SECONDS", "120"))


def fresh_seed() -> int:
    """Return another seed each time, which a failure names, or the one of SOAK_SEED: `.ci/run` gives one, so that no
    change is held up by a defect that chance finds on that day."""
    told = os.environ.get("SOAK_SEED")
    return random.randrange(2**32) if told is None else int(told)
