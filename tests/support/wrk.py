"""wrk, a load generator: as many requests as a few threads of C can send."""

from __future__ import annotations

import re
import shutil
import subprocess

import pytest

from tests.support.access_logs import HOST

needs_wrk = pytest.mark.skipif(shutil.which("wrk") is None, reason="wrk is not installed: apt-get install wrk")


def passed_and_refused(port: int, path: str, seconds: int = 2, connections: int = 32) -> tuple[int, int]:
    """How many requests for a page had 200 and how many had another status; a connection that fails is an error.

    At its end wrk leaves some answers unread. They are refusals if the limit was used up long before.
    """
    words = [
        "wrk",
        "--threads",
        "2",
        "--connections",
        str(connections),
        "--duration",
        f"{seconds}s",
        "--timeout",
        "20s",
    ]
    ran = subprocess.run(
        [*words, f"http://{HOST}:{port}{path}"], capture_output=True, text=True, check=True, timeout=60
    )
    requests, other = re.search(r"(\d+) requests in", ran.stdout), re.search(r"Non-2xx.*: (\d+)", ran.stdout)
    assert requests is not None and "Socket errors" not in ran.stdout, ran.stdout
    refused = int(other[1]) if other else 0
    return int(requests[1]) - refused, refused
