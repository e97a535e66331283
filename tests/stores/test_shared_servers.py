"""Real servers with four workers each, a real client, and exactly the limit."""

from __future__ import annotations

from collections import Counter

import pytest

from headgate.engine import NATIVE
from tests.support.serving import GUNICORN, UVICORN, serving

pytestmark = pytest.mark.skipif(not NATIVE, reason="shared stores need the native engine")

SERVERS = {
    "gunicorn": (*GUNICORN, "tests.support.apps:wsgi"),
    "gunicorn --preload": (*GUNICORN, "--preload", "tests.support.apps:wsgi"),
    "uvicorn": (*UVICORN, "tests.support.apps:asgi"),
}


@pytest.mark.parametrize("name", SERVERS)
def test_four_workers_serve_exactly_the_limit(tmp_path, name):
    """Of 100 requests spread over four workers, 25 get 200 and the others 429."""
    with serving(tmp_path, *SERVERS[name], "--workers=4", HEADGATE_URL=f"shared://{tmp_path}/store") as server:
        assert Counter(server.ask().status for _ in range(100)) == {200: 25, 429: 75}
