"""Schemathesis, a stranger, reads the OpenAPI document and sends what it describes, and what it forbids."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.edge import HOST, serving
from tests.support.soaking import fresh_seed

pytestmark = [
    pytest.mark.engineless,
    pytest.mark.soak,
    pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="looks at processes of Linux"),
]
PATIENCE = "120"
"""Seconds for an answer: on a machine that has other work, a process may not run at all for ten."""
POLICY = "rules:\n  - {name: one, key: ip, limits: 1000000/hour}\n"
SETTINGS = """\
[checks.negative_data_rejection]
expected-statuses = ["400", "405", "413", "422"]
[checks.positive_data_acceptance]
enabled = false
"""
"""Schemathesis does not take 413 for a refusal, and a bad body of more than a megabyte is too long before it is bad.
A text that fits the schema of a limit need not be one, so that a question that fits may be refused."""


def attacked(tmp_path: Path, *options: str) -> None:
    """Run Schemathesis against a service; it must find nothing, and leave the service as it was."""
    (tmp_path / "policy.yaml").write_text(POLICY)
    (tmp_path / "schemathesis.toml").write_text(SETTINGS)
    command = str(Path(sys.executable).with_name("st"))
    with serving("--policy", str(tmp_path / "policy.yaml"), "--workers", "1") as service:
        before = service.workers()
        words = ["run", f"http://{HOST}:{service.port}/openapi.json", "--generation-database", "none"]
        words += ["--seed", str(fresh_seed()), "--request-timeout", PATIENCE, *options]
        ran = subprocess.run([command, *words], cwd=tmp_path, capture_output=True, text=True, timeout=1800, check=False)
        assert ran.returncode == 0, ran.stdout[-4000:]
        assert service.workers() == before and service.check("/")[0] == 204
        assert not [line for line in service.lines if "Exception" in line]


def test_the_service_is_as_its_document_says(tmp_path):
    """Each field at its bounds and beyond them, each method that a path does not have: no surprise, no 500."""
    attacked(tmp_path, "--phases", "coverage")


def test_the_service_is_as_its_document_says_for_long(tmp_path):
    """Thousands of made requests: no 500, no answer that the document does not have, no yes to a bad question."""
    attacked(tmp_path, "--phases", "fuzzing", "--max-examples", "1000")
