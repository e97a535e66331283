"""The floor under the coverage of the suite: `coverage json -o FILE; python -m tools.coverage_floor FILE`.

Lines are counted over the whole package; branches in `policy` and `web`, where a branch that no test takes may be a
request that passes without being counted. `coverage report` has only the sum of both.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

FLOOR: Final = 97.0
"""Percent, of lines and of branches."""
SHOWN: Final = 15
"""Files that are named: those that miss most."""


def main(file: str) -> int:
    """Print both shares; return 1 if one is below the floor."""
    files = json.loads(Path(file).read_text(encoding="utf-8"))["files"]
    branched = {name: each for name, each in files.items() if "/headgate/policy/" in name or "/headgate/web/" in name}
    lines = share(files.values(), "covered_lines", "num_statements")
    branches = share(branched.values(), "covered_branches", "num_branches")
    print(f"{lines:.2f} % of the lines, {branches:.2f} % of the branches in policy and web; the floor is {FLOOR:g} %")
    if min(lines, branches) >= FLOOR:
        return 0
    for name in sorted(files, key=lambda name: -missed(files[name]))[:SHOWN]:
        print(f"  {missed(files[name])} missed in {name}")
    return 1


def share(files: Iterable[Any], covered: str, known: str) -> float:
    """The percentage of something over several files."""
    sums = [each["summary"] for each in files]
    return 100.0 * sum(int(each[covered]) for each in sums) / sum(int(each[known]) for each in sums)


def missed(file: Any) -> int:  # noqa: ANN401
    """Lines and branches of a file that no test has reached."""
    return len(file["missing_lines"]) + len(file["missing_branches"])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
