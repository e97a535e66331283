"""Write the pictures, or tell which are not current: `python -m tools.pictures [--check]`."""

from __future__ import annotations

import sys
from pathlib import Path

from tools.pictures import algorithms, homes, leases, policy, shedding

HOME = Path(__file__).parents[2] / "docs/pictures"


def main(check: bool) -> int:
    """Return 0 if every picture is as this program draws it."""
    drawn = algorithms.pictures() | {
        "homes.svg": homes.picture(),
        "leases.svg": leases.picture(),
        "policy.svg": policy.picture(),
        "shedding.svg": shedding.picture(),
    }
    HOME.mkdir(exist_ok=True)
    kept = {path.name: path.read_text(encoding="utf-8") for path in HOME.glob("*.svg")}
    if check:
        stale = sorted(name for name in {*drawn, *kept} if drawn.get(name) != kept.get(name))
        print(
            f"not current: {', '.join(stale)}; run `make pictures`" if stale else f"{len(drawn)} pictures are current"
        )
        return 1 if stale else 0
    for name in {*kept} - {*drawn}:
        (HOME / name).unlink()
    for name, text in drawn.items():
        (HOME / name).write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main("--check" in sys.argv[1:]))
