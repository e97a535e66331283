"""The same examples every time: chance belongs to `make soak`."""

import gc
import os
import socket
from importlib.util import find_spec

import pytest
from hypothesis import given, settings, strategies

from headgate.engine.choice import wants_pure
from headgate.testing import ManualClock
from tests.support.browser import running
from tests.support.flight import flying
from tests.support.homes import EVERY_HOME, EVERY_WAY, LATER, home_of
from tests.support.postgres import PROGRAMS, WHY_NOT
from tests.support.proxy import Proxy
from tests.support.servers import Server
from tests.support.unreachable import Names

settings.register_profile("steady", derandomize=True, deadline=None)
settings.load_profile("steady")
# Uvicorn replaces a worker that has not answered for 5 s, which on a busy machine may be one that is starting.
os.environ["UVICORN_TIMEOUT_WORKER_HEALTHCHECK"] = "30"


NEEDED = {
    "grpc": [
        *(f"edge/envoy/test_{name}.py" for name in ("envoy", "grpc", "redis", "served", "slow_peers", "workers")),
        *(f"web/test_{name}.py" for name in ("awaited_functions", "grpc*", "request_decision")),
        "policy/test_reading_time.py", "soak/test_reading_storm.py",
    ],
    "psycopg": ["project/test_reference.py"],
    "pyproject_hooks": ["project/test_wheel.py"],  # of `build`, whose own name is that of a folder here
}  # fmt: skip
"""Packages that have no wheels for free-threaded Pythons, or are not in their group; and the tests that need them."""
collect_ignore_glob = [file for name, files in NEEDED.items() if find_spec(name) is None for file in files]


def pytest_ignore_collect(collection_path):
    """What does not touch the engine's tables is not run, nor imported, a second time on the pure one."""
    if wants_pure() and collection_path.suffix == ".py":
        return True if "pytest.mark.engineless" in collection_path.read_text(encoding="utf-8") else None
    return None


# Modules and tests that are collected live until the end, so that the garbage collector need not look at them: a full
# collection then takes a millisecond, and half a second otherwise.
gc.disable()


def pytest_collection():
    """Let Hypothesis run once. It asks the garbage collector who holds its random numbers, as long as that can tell."""
    given(strategies.none())(lambda nothing: None)()


def pytest_collection_finish():
    """Let the garbage collector begin, with nothing to look at but what the tests make."""
    gc.freeze()
    gc.enable()


def pytest_terminal_summary(terminalreporter):
    """Say that the tests of PostgreSQL were skipped: a run without them looks the same otherwise."""
    if PROGRAMS is None:
        terminalreporter.write_line(f"skipped: {WHY_NOT}")


@pytest.fixture(scope="module")
def browser():
    """A real browser for the tests of one file."""
    with running() as browser:
        yield browser


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


@pytest.fixture
def clock():
    """A clock that stands still, a whole minute long after every window began."""
    return ManualClock(LATER)


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
