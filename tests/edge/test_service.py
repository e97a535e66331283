"""`headgate serve`: how a service starts, what it refuses to do, and how it ends."""

from __future__ import annotations

import os

import pytest

from headgate.cli import main
from tests.support.edge import refuses, serving

pytestmark = [
    pytest.mark.engineless,
    pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="looks at processes of Linux"),
]

POLICY = """\
rules:
  - name: api
    match: {path: /api/**}
    key: ip
    limits: 3/hour
"""


@pytest.fixture
def policy(tmp_path):
    """A policy with one rule."""
    file = tmp_path / "policy.yaml"
    file.write_text(POLICY)
    return str(file)


def test_a_service_rules_on_the_requests_that_a_proxy_tells_of(policy):
    """204 with header fields while the limit lasts, then 429 with Retry-After; its end is clean, its store is gone."""
    with serving("--policy", policy) as service:
        store = service.line(r"store: shared://(\S+)/store,")[1]
        assert os.path.isdir(store)
        found = [service.check("/api/users?page=2") for _ in range(4)]
        assert [status for status, _, _ in found] == [204, 204, 204, 429]
        assert found[0][1]["ratelimit"] == '"api";r=2;t=1200'
        assert found[3][1]["retry-after"] == "1200"
        assert b'"violated-policies": ["api"]' in found[3][2]
        assert service.check("/about")[0] == 204
        assert service.check("/api/users", client="203.0.113.10")[0] == 204
        assert service.end() == 0
        assert not os.path.isdir(store)


def test_a_service_that_others_can_reach_needs_a_token_or_a_word(policy):
    """It refuses to listen beyond loopback, and tells both ways out."""
    assert refuses("--policy", policy, "--listen", "0.0.0.0:0") == (
        "headgate: --listen 0.0.0.0:0 can be reached from other machines, and anyone there could use up the limits: "
        "give --token-file FILE, or --open if only your proxies can reach it\n"
    )


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--listen", "8080"], "--listen is a host and a port; got '8080': write for instance 127.0.0.1:8080 or unix:"),
        (["--listen", "unix:x.sock"], "needs the whole path of the socket, as in unix:/run/headgate.sock"),
        (["--envoy-algorithm", "bogus"], "--envoy-algorithm: unknown algorithm 'bogus'. Use one of token-bucket"),
        (["--workers", "0"], "--workers is a number from 1 to 128; got 0"),
        (["--store", "memory://"], "each worker has its own memory, and would admit the whole limit"),
        (["--tls-cert", "a.pem"], "--tls-cert and --tls-key belong together"),
        (["--token-file", "/none"], "cannot read the token file /none: No such file or directory"),
    ],
)
def test_settings_that_cannot_work_are_refused(policy, options, told, capsys):
    """The message names the option, and what to write."""
    assert main(["serve", "--policy", policy, "--check", *options]) == 1
    assert told in capsys.readouterr().err


def test_a_service_without_a_policy_has_nothing_to_decide(capsys):
    """It says which option is missing."""
    assert main(["serve", "--check"]) == 1
    assert capsys.readouterr().err == (
        "headgate: there is nothing to decide by: give --policy FILE, or --envoy DIRECTORY\n"
    )


def test_a_bad_policy_is_refused_with_its_lines(tmp_path, capsys):
    """Every mistake has the line of its file, as in `headgate policy check`."""
    file = tmp_path / "policy.yaml"
    file.write_text(POLICY.replace("3/hour", "3/fortnite").replace("key", "keys"))
    assert main(["serve", "--policy", str(file), "--check"]) == 1
    told = capsys.readouterr().err
    assert [line.partition(": ")[0] for line in told.splitlines()] == [f"policy.yaml:{line}" for line in (2, 4, 5)]
