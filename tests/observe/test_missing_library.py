"""Metrics without the library that carries them."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytestmark = pytest.mark.engineless


@pytest.mark.parametrize(
    ("module", "package", "told"),
    [
        ("prometheus", "prometheus_client", "prometheus-client: pip install '.[prometheus]'"),
        ("otel", "opentelemetry", "opentelemetry-api: pip install '.[otel]'"),
    ],
)
def test_a_missing_library_is_an_import_error_that_says_how_to_install_it(module, package, told):
    """The error is the one of every other optional library, so that an app can catch it in the usual way."""
    code = f"import sys; sys.modules[{package!r}] = None; import headgate.observe.{module}"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert f"ModuleNotFoundError: headgate.observe.{module} needs {told}" in ran.stderr
