"""`make coverage` fails below its floor."""

from __future__ import annotations

import json

import pytest

pytestmark = pytest.mark.engineless
floor = pytest.importorskip("tools.coverage_floor", reason="tools are in the source tree")


def measured(lines: int, branches: int) -> dict[str, object]:
    """A file of 100 lines and 100 branches, of which so many were reached."""
    return {
        "summary": {"covered_lines": lines, "num_statements": 100, "covered_branches": branches, "num_branches": 100},
        "missing_lines": [*range(100 - lines)],
        "missing_branches": [*range(100 - branches)],
    }


@pytest.mark.parametrize(
    ("policy", "limiter", "code"),
    [
        ((100, 97), (94, 0), 0),  # 97 % of both; branches of a limiter do not count
        ((100, 96), (100, 100), 1),
        ((99, 100), (94, 100), 1),
    ],
    ids=["at the floor", "too few branches", "too few lines"],
)
def test_lines_and_branches_have_a_floor_of_97_percent(tmp_path, capsys, policy, limiter, code):
    """Lines count everywhere, branches in policy and web; below the floor, the files that miss most are named."""
    files = {"src/headgate/policy/path.py": measured(*policy), "src/headgate/limiter/base.py": measured(*limiter)}
    (tmp_path / "coverage.json").write_text(json.dumps({"files": files}), encoding="utf-8")
    assert floor.main(str(tmp_path / "coverage.json")) == code
    assert ("missed in src/headgate" in capsys.readouterr().out) == bool(code)
