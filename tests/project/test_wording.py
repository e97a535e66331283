"""What messages say: public names, what was probably meant, what to install; and never a password."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from flask import Flask
from starlette.applications import Starlette

from headgate import (
    AsyncLimiter,
    AsyncShaper,
    InvalidCall,
    InvalidLimit,
    Limit,
    Limiter,
    LoadShedder,
    MemoryStore,
    Shaper,
)
from headgate.errors import InvalidPolicy
from headgate.policy import Policy
from headgate.stores import open_store
from headgate.stores.redis import RedisStore
from headgate.stores.shared import SharedStore
from headgate.web.asgi import RateLimitMiddleware as Asgi
from headgate.web.fastapi import limit as dependency
from headgate.web.flask import RateLimits as FlaskLimits
from headgate.web.flask import limited
from headgate.web.starlette import RateLimits as StarletteLimits
from headgate.web.wsgi import RateLimitMiddleware as Wsgi
from headgate.wording import missing
from tests.support import ROOT

pytestmark = pytest.mark.engineless


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        ("1,000/hour", "write 1000/hour or 1_000/hour"),
        ("1,000,000 per 2 hours burst 5", "write 1000000 per 2 hours burst 5 or 1_000_000 per 2 hours burst 5"),
        ("1,000 in flight", "write 1000 in flight or 1_000 in flight"),
        ("0.5/second", "write 1 per 2 seconds"),
        ("1.5/minute", "write 3 per 2 minutes"),
        (".25 per 2 hours", "write 1 per 8 hours"),
        ("10/second, 100/hour", "limits are separated by ;"),
        ("10/second & 100/hour", "limits are separated by ;"),
        ("1/second \u2003", "after the rate there may be"),
    ],
)
def test_a_limit_that_cannot_be_read_is_told_how_to_be_written(words, hint):
    """The limit that a message proposes can be read."""
    with pytest.raises(InvalidLimit) as raised:
        Limit.parse_all(words)
    assert hint in str(raised.value)
    for proposed in hint.removeprefix("write ").split(" or ") if hint.startswith("write ") else ():
        assert Limit.parse(proposed)


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (
            lambda: Limiter("5/minute", algorithm="gcra"),
            "Limiter() has no argument 'algorithm': write '5/minute by gcra'",
        ),
        (lambda: AsyncLimiter("5/minute", burst=9), "AsyncLimiter() has no argument 'burst': write '5/minute burst 9'"),
        (
            lambda: FlaskLimits(Flask("app"), default="5/minute", algorithm="gcra"),
            "RateLimits() has no argument 'algorithm': write it into the limit, as in '5/minute by gcra'",
        ),
        (
            lambda: FlaskLimits(Flask("app"), defualt="5/minute"),
            "RateLimits() has no argument 'defualt'; did you mean 'default'?",
        ),
        (
            lambda: StarletteLimits(Starlette(), limits="5/minute"),
            "RateLimits() has no argument 'limits': write default='5/minute'",
        ),
        (
            lambda: LoadShedder(timeout=1),
            "LoadShedder() has no argument 'timeout'; use one of limit, classes, workers, mode, clock",
        ),
        (lambda: Limiter("1/s", stor="memory://"), "Limiter() has no argument 'stor'; did you mean 'store'?"),
        (
            lambda: Limiter("1/s", dedline=0.1),
            "Limiter() has no argument 'dedline'; 'deadline' belongs to a Redis store: "
            "write store='redis://cache?deadline=0.1'",
        ),
        (
            lambda: Limiter("1/s", colour=1),
            "Limiter() has no argument 'colour'; use one of store, namespace, clock, on_error, max_waiting, lease, "
            "pausable",
        ),
        (lambda: Shaper("1/s", namespac="a"), "Shaper() has no argument 'namespac'; did you mean 'namespace'?"),
        (lambda: AsyncShaper("1/s", clok=1), "AsyncShaper() has no argument 'clok'; did you mean 'clock'?"),
        (
            lambda: RedisStore("redis://a", dedline=1),
            "RedisStore() has no argument 'dedline'; did you mean 'deadline'?",
        ),
        (lambda: MemoryStore(max_key=1), "MemoryStore() has no argument 'max_key'; did you mean 'max_keys'?"),
        (lambda: SharedStore("/x", max_key=1), "SharedStore() has no argument 'max_key'; did you mean 'max_keys'?"),
        (lambda: Asgi(None, {}, stor=1), "RateLimitMiddleware() has no argument 'stor'; did you mean 'store'?"),
        (
            lambda: Wsgi(None, {}, proxies=1),
            "RateLimitMiddleware() has no argument 'proxies'; did you mean 'trusted_proxies'?",
        ),
    ],
)
def test_an_argument_that_is_not_there_is_told_with_the_class_that_was_called(make, told):
    """The message proposes the argument that was probably meant, and names nothing that is not public."""
    with pytest.raises(TypeError) as raised:
        make()
    assert str(raised.value) == told


def test_the_arguments_of_a_class_can_still_be_looked_up():
    """The signature is seen by `help`, by editors and by functions that wrap it."""
    import inspect

    assert list(inspect.signature(Limiter).parameters)[:3] == ["limits", "store", "namespace"]


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("localhost:6379", "'localhost:6379' has no scheme: write redis://localhost:6379"),
        ("redis:6379", "'redis:6379' has no scheme: write redis://redis:6379"),
        ("valkey:6379/0", "'valkey:6379/0' has no scheme: write valkey://valkey:6379/0"),
        ("postgres:5432/app", "'postgres:5432/app' has no scheme: write postgresql://postgres:5432/app"),
        ("rediss:/0", "the URL of a server has // before its host: write rediss://HOST"),
        ("[::1]:6379", "'[::1]:6379' has no scheme: write redis://[::1]:6379"),
        ("user:pw@cache:6379", "'cache:6379' has no scheme: write redis://***@cache:6379"),
        ("cache", "no store for a URL without a scheme"),
        ("redis://cache?dedline=1", "the URL of a tcp Redis store has no option dedline; did you mean 'deadline'?"),
        ("shared:./x", f"cannot read 'shared:./x': the path must be absolute; write shared://{Path.cwd()}/x"),
        ("shared:up/x", f"cannot read 'shared:up/x': the path must be absolute; write shared://{Path.cwd()}/up/x"),
    ],
)
def test_a_store_that_cannot_be_opened_is_told_how_to_be_written(url, told):
    """As far as it can be known what was meant."""
    with pytest.raises(InvalidCall) as raised:
        open_store(url, None)
    assert str(raised.value).startswith(told)


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: limited("often"), "limited(): limits: cannot read the limit 'often'"),
        (lambda: limited("1/s", kay="user"), "limited(): kay: unknown field 'kay'; did you mean 'key'?"),
        (
            lambda: limited("5/minute", algorithm="gcra"),
            "limited(): algorithm: unknown field 'algorithm'; write '5/minute by gcra'",
        ),
        (
            lambda: limited({"default": "5/minute"}, burst=9),
            "limited(): burst: unknown field 'burst'; write it into the limit, as in '5/minute burst 9'",
        ),
        (lambda: dependency("1/s", key="usr"), "limit(): key: expected one of"),
        (lambda: dependency("often"), "limit(): limits: cannot read the limit 'often'"),
    ],
)
def test_a_mistake_at_an_endpoint_names_what_was_written_there(make, told):
    """The message does not name a rule of a policy, which nobody has written."""
    with pytest.raises(InvalidPolicy) as raised:
        make()
    assert str(raised.value).startswith(told)


def test_the_default_of_an_app_names_the_class_it_was_given_to():
    """As there is no decorator."""
    with pytest.raises(InvalidPolicy, match=r"^RateLimits\(\): limits: cannot read the limit 'often'"):
        FlaskLimits(Flask("app"), default="often")


def test_no_page_and_no_message_installs_an_extra_from_the_index():
    """The package is not on the index yet: `pip install '.[redis]'` works in a clone, `'headgate[redis]'` nowhere."""
    files = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "src").rglob("*.py")]
    assert [file.name for file in files if re.search(r"pip install\W+headgate\[", file.read_text())] == []


@pytest.mark.parametrize(("setup", "begins"), [("", "headgate: "), ("logging.basicConfig()", "WARNING:headgate.web:")])
def test_a_line_in_the_log_begins_with_headgate(setup, begins):
    """The name of the log begins the line; without a handler Python writes the bare text, which says it itself."""
    code = (
        f"import logging; {setup}\n"
        "from headgate.web.wsgi import RateLimitMiddleware as R\n"
        "app = R(lambda environ, start: [], {'rules': [{'key': 'ip', 'limits': '1/s'}]})\n"
        "app({'REQUEST_METHOD': 'GET', 'PATH_INFO': '/', 'REMOTE_ADDR': '::1', 'HTTP_FORWARDED': 'x'}, None)\n"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stderr.startswith(f"{begins}requests have forwarded headers, but no proxy is trusted")


def test_every_log_of_ours_is_one_of_these():
    """A module that took a log of its own would write lines that nobody can tell the origin of."""
    import headgate

    folder = Path(headgate.__file__).parent
    for source in folder.rglob("*.py"):
        if source.name != "logs.py":
            assert "getLogger" not in source.read_text(encoding="utf-8"), source


def test_what_has_to_be_installed_is_told_as_it_can_be_installed():
    """From a clone, or by itself."""
    extra = "a Redis store needs redis: pip install '.[redis]' in a clone of Headgate, or pip install 'redis'"
    assert missing("a Redis store", "redis", "redis") == extra
    assert missing("headgate.web.grpc", "grpcio") == "headgate.web.grpc needs grpcio: pip install grpcio"


def test_yaml_without_its_library_is_told_and_json_has_its_lines(tmp_path, monkeypatch):
    """JSON and TOML need nothing."""
    monkeypatch.setattr("headgate.policy.source.INSTALLED", False)
    for name, told in {
        "policy.yaml": "policy.yaml: YAML needs PyYAML: pip install '.[yaml]' in a clone of Headgate, "
        "or pip install 'PyYAML'; or write TOML or JSON",
        "policy.json": "policy.json:2: rules[0].kay: unknown field 'kay'; did you mean 'key'?",
    }.items():
        (tmp_path / name).write_text('{"rules": [{"key": "ip", "limits": "1/s",\n "kay": 1}]}')
        with pytest.raises(InvalidPolicy) as raised:
            Policy.load(tmp_path / name)
        assert str(raised.value) == told


@pytest.mark.parametrize(
    ("module", "without", "package"),
    [
        ("headgate.web.fastapi", "fastapi", "fastapi"),
        ("headgate.web.starlette", "starlette", "starlette"),
        ("headgate.web.flask", "flask", "flask"),
        ("headgate.web.django", "django", "django"),
        ("headgate.web.drf", "rest_framework", "djangorestframework"),
        ("headgate.web.aiohttp", "aiohttp", "aiohttp"),
        ("headgate.web.grpc", "grpc", "grpcio"),
        ("headgate.tasks.celery", "celery", "celery"),
        ("headgate.tasks.dramatiq", "dramatiq", "dramatiq"),
        ("headgate.tasks.rq", "rq", "rq"),
    ],
)
def test_a_framework_that_is_not_there_is_told_by_the_name_it_is_installed_by(module, without, package):
    """Which is not always the name it is imported by."""
    code = (
        f"import sys; sys.modules[{without!r}] = None\n"
        f"try:\n    import {module}\nexcept ModuleNotFoundError as error: print(error)"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout == f"{module} needs {package}: pip install {package}\n"


@pytest.mark.parametrize(
    ("extra", "without", "package"),
    [
        ("httpx", ("httpx", "httpx2"), "httpx"),
        ("requests", ("requests",), "requests"),
        ("aiohttp", ("aiohttp",), "aiohttp"),
        ("grpc", ("grpc",), "grpcio"),
    ],
)
def test_a_transport_without_its_library_names_the_extra(extra, without, package):
    """The extra of the same name brings the library."""
    code = (
        f"import sys\nfor name in {without!r}: sys.modules[name] = None\n"
        f"try:\n    import headgate.client.{extra}\nexcept ModuleNotFoundError as error: print(error)"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    how = f"pip install '.[{extra}]' in a clone of Headgate, or pip install '{package}'"
    assert ran.stdout == f"headgate.client.{extra} needs {package}: {how}\n"
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert extras[extra][0].startswith(package) and extra in extras["all"][0]
