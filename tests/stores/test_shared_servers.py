"""Real servers with four workers each, a real client, and exactly the limit."""

from __future__ import annotations

import collections
import http.client
import os
import socket
import subprocess
import sys
import tempfile
import time

import pytest

from headgate.engine import NATIVE
from tests.support import ROOT

pytestmark = pytest.mark.skipif(not NATIVE, reason="shared stores need the native engine")

SERVERS = {
    "gunicorn": ["gunicorn", "--workers=4", "--bind=unix:{socket}", "--log-level=error", "tests.support.apps:wsgi"],
    "gunicorn --preload": ["gunicorn", "--workers=4", "--preload", "--bind=unix:{socket}", "tests.support.apps:wsgi"],
    "uvicorn": ["uvicorn", "--workers=4", "--uds={socket}", "--log-level=error", "tests.support.apps:asgi"],
}


class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: str) -> None:
        super().__init__("localhost")
        self.path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(10)
        self.sock.connect(self.path)


def ask(path: str) -> int:
    connection = UnixConnection(path)
    try:
        connection.request("GET", "/", headers={"X-User": "ann"})
        return connection.getresponse().status
    finally:
        connection.close()


def wait_until_served(path: str, server: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + 30
    while time.monotonic() < end and server.poll() is None:
        try:
            with socket.socket(socket.AF_UNIX) as probe:
                probe.connect(path)
            return
        except OSError:
            time.sleep(0.05)
    pytest.fail("the server did not come up")


@pytest.mark.parametrize("name", SERVERS)
def test_four_workers_serve_exactly_the_limit(tmp_path, name):
    """Of 100 requests spread over four workers, 25 get 200 and the others 429."""
    with tempfile.TemporaryDirectory() as short:  # a unix socket's path may not be long
        path = os.path.join(short, "s")
        command = [sys.executable, "-m", *(part.format(socket=path) for part in SERVERS[name])]
        environment = {**os.environ, "HEADGATE_URL": f"shared://{tmp_path}/store"}
        server = subprocess.Popen(command, env=environment, cwd=ROOT)
        try:
            wait_until_served(path, server)
            assert collections.Counter(ask(path) for _ in range(100)) == {200: 25, 429: 75}
        finally:
            server.terminate()
            server.wait(30)
