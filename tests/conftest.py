"""The same examples every time: chance belongs to `make soak`."""

import socket

import pytest
from hypothesis import settings

from headgate.engine.choice import wants_pure
from tests.flight import flying
from tests.homes import EVERY_HOME, EVERY_WAY, home_of
from tests.proxy import Proxy
from tests.servers import Server
from tests.unreachable import Names

settings.register_profile("steady", derandomize=True, deadline=None)
settings.load_profile("steady")

# What does not touch the engine's tables is not run a second time on the pure one.
ENGINELESS = (
    "test_address.py", "test_aiohttp.py", "test_asgi_frameworks.py", "test_cli_policy.py", "test_core_refusals.py",
    "test_decorator_order.py", "test_django*.py", "test_drf.py", "test_edges_flight.py", "test_endpoints.py",
    "test_fastapi.py", "test_fields_after.py", "test_flask.py", "test_flight_redis.py", "test_gallery.py",
    "test_grpc*.py", "test_headers.py", "test_lease_simulation.py", "test_make.py", "test_methods.py",
    "test_mounts.py", "test_no_address.py", "test_policy*.py", "test_reach.py", "test_reading_time.py",
    "test_redis*.py", "test_refusal.py", "test_reload.py", "test_repeated.py", "test_servers.py",
    "test_starlette.py", "test_tasks*.py", "test_told_times.py", "test_value*.py", "test_web_servers.py",
    "test_wording.py",
)  # fmt: skip
collect_ignore_glob = list(ENGINELESS) if wants_pure() else []


@pytest.fixture(scope="module")
def one_server():
    """A real server for the tests of one file."""
    with Server() as server:
        yield server


@pytest.fixture
def server(one_server):
    """The file's server, empty."""
    one_server.client().flushall()
    return one_server


@pytest.fixture
def proxy(server):
    """A wire to it that can be made faulty."""
    with Proxy(server) as proxy:
        yield proxy


@pytest.fixture
def names(monkeypatch):
    """The system's lookup of one name, which may be made silent."""
    names = Names("127.0.0.1")
    monkeypatch.setattr(socket, "getaddrinfo", names.getaddrinfo)
    yield names
    names.speaks.set()


@pytest.fixture(params=EVERY_HOME)
def home(request):
    """Where limiters keep their states: each kind in turn, with nothing in it."""
    with home_of(request.param) as home:
        yield home


@pytest.fixture(params=EVERY_WAY)
def make(request):
    """Makes limiters of what is in flight, on each kind of home, called and awaited."""
    with flying(request.param) as make:
        yield make
