"""`headgate policy check`, `explain` and `schema`."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys

import pytest

from headgate.cli import main
from headgate.policy.hashing import hashed
from headgate.policy.schema import schema

pytestmark = pytest.mark.engineless

POLICY = """\
plan: {trusted_header: X-Plan}
allow: {ip: 10.9.9.9}
deny: {ip: 192.0.2.0/24}
rules:
- name: login
  match: {path: /login, method: POST}
  key: [ip, {header: Authorization}]
  limits: 5/minute
  cost: 2
- name: api
  match: {path: "/api/{team}/**"}
  key: {param: team}
  limits: {default: 10/minute, pro: 100/minute; 1000/hour}
- name: members
  match: {path: /members}
  key: user
  missing: deny
  limits: 3/minute
- name: perhaps
  match: {path: /perhaps}
  key: user
  missing: skip
  limits: 3/minute
- name: dry
  match: {path: /dry}
  key: ip
  act: observe
  limits: 3/minute
- name: held
  match: {path: /held}
  key: ip
  act: {delay: {at_most: 200ms}}
  limits: 20/second
- name: dear
  match: {path: /dear}
  key: ip
  cost: 9
  limits: 3/minute
"""

ADVICE = (
    "warning: policy.yaml:7: rule login: a client can invent header Authorization, and has a new budget with each new "
    "value; add a rule by ip for the same requests, or count by a verified value (user, claim, trusted_header)\n"
)


@pytest.fixture
def file(tmp_path):
    made = tmp_path / "policy.yaml"
    made.write_text(POLICY)
    return str(made)


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    """Exit code, output and errors."""
    code = main(["policy", *arguments])
    said = capsys.readouterr()
    return code, said.out, said.err


def test_check_counts_the_rules_of_a_file_without_mistakes(capsys, file, tmp_path):
    """One line, then what its writer may want to know; exit code 0."""
    assert run(capsys, "check", file) == (0, f"{file}: 7 rules, no mistakes\n{ADVICE}", "")
    one = tmp_path / "one.json"
    one.write_text('{"rules": [{"key": "ip", "limits": "1/minute"}]}')
    assert run(capsys, "check", str(one)) == (0, f"{one}: 1 rule, no mistakes\n", "")
    one.write_text('{"rules": [], "shed": {"fleet": {"limit": "8 in flight"}}}')
    assert run(capsys, "check", str(one)) == (0, f"{one}: 0 rules and load shedding, no mistakes\n", "")


def test_check_tells_every_mistake_with_its_line(capsys, tmp_path):
    """On stderr, exit code 1."""
    bad = tmp_path / "policy.yaml"
    bad.write_text("rules:\n- key: ipp\n  limits: 1/minute\n  mach: {}\n")
    words = "ip, user, plan, host, method, path, route, everyone"
    assert run(capsys, "check", str(bad)) == (1, "", (
        f"policy.yaml:2: rules[0].key: expected one of {words}; got 'ipp'; did you mean 'ip'?\n"
        "policy.yaml:4: rules[0].mach: unknown field 'mach'; did you mean 'match'?\n"
    ))  # fmt: skip


def test_check_of_what_is_not_there(capsys, tmp_path):
    """A file that is not there is an error of `check` and of `explain`."""
    for verb in ("check", "explain"):
        code, out, err = run(capsys, verb, str(tmp_path / "none.yaml"))
        assert (code, out) == (1, "")
        assert err.startswith(f"{tmp_path}/none.yaml: cannot be read: ") and err.count("\n") == 1


EXPLAINED = r"""
$ --path /held
GET /held from 127.0.0.1
rule held: counted by 127.0.0.1; 20/second as held; cost 1; act delay of at most 0.2 s
binding: rule held, 20/second as held
with nothing spent yet: allowed, 4 of 20 left after it

$ --path /
GET / from 127.0.0.1
allowed: no rule matches

$ --path /api/red/x
GET /api/red/x from 127.0.0.1
rule api: counted by red; 10/minute as api; cost 1; act deny
binding: rule api, 10/minute as api
with nothing spent yet: allowed, 9 of 10 left after it

$ --path '/api/red?x=y' --header 'x-plan: pro' --trusted-proxy 127.0.0.0/8
GET /api/red from 127.0.0.1, plan pro
rule api: counted by red; 100/minute as api.1; 1000/hour as api.2; cost 1; act deny
binding: rule api, 100/minute as api.1
with nothing spent yet: allowed, 99 of 100 left after it

$ --path /api/red --header 'x-plan: pro' --ip 203.0.113.9
GET /api/red from 203.0.113.9
rule api: counted by red; 10/minute as api; cost 1; act deny
binding: rule api, 10/minute as api
with nothing spent yet: allowed, 9 of 10 left after it

$ --path /login --method post --ip 2001:db8::9
POST /login from 2001:db8::9
rule login: counted by 2001:db8::/64|\m2001:db8::/64; 5/minute as login; cost 2; act deny
binding: rule login, 5/minute as login
with nothing spent yet: allowed, 3 of 5 left after it

$ --path /members
GET /members from 127.0.0.1
rule members: refused because user is missing; 3/minute as members; cost 1; act deny
refused (403) by rule members

$ --path /members --user ann
GET /members from 127.0.0.1
rule members: counted by ann; 3/minute as members; cost 1; act deny
binding: rule members, 3/minute as members
with nothing spent yet: allowed, 2 of 3 left after it

$ --path /dear
GET /dear from 127.0.0.1
rule dear: counted by 127.0.0.1; 3/minute as dear; cost 9; act deny
binding: rule dear, 3/minute as dear
with nothing spent yet: refused, 3 of 3 left after it

$ --path /dear --ip 10.9.9.9
GET /dear from 10.9.9.9
allowed: the policy's allow matches it

$ --path /dear --ip 192.0.2.7
GET /dear from 192.0.2.7
refused (403): the policy's deny matches it
"""


def transcript(text: str) -> list[tuple[list[str], list[str]]]:
    """The arguments after each prompt, and the lines below it."""
    cases = [case.strip("\n").split("\n") for case in text.split("\n\n")]
    return [(shlex.split(prompt.removeprefix("$ ")), lines) for prompt, *lines in cases]


@pytest.mark.parametrize(("request_", "lines"), transcript(EXPLAINED))
def test_explain_says_which_rules_match_by_which_key_and_which_limit_binds(capsys, file, request_, lines):
    """Exactly what would happen with nothing spent yet."""
    code, out, err = run(capsys, "explain", file, *request_)
    assert (code, out.splitlines(), err) == (0, lines, "")


IDLE = """\
plan: {trusted_header: x-plan}
rules:
- {name: perhaps, match: {path: [/perhaps, /both]}, key: [user, {header: X-Key}], missing: skip, limits: 3/minute}
- {name: dry, match: {path: [/dry, /both]}, key: ip, act: observe, limits: 3/minute}
- {name: strict, match: {path: /strict}, key: user, missing: deny, act: observe, limits: 3/minute}
- {name: free, match: {path: /free}, key: ip, limits: {default: 3/minute, internal: ""}}
- {name: known, match: {path: /known}, key: ip, limits: 3/minute}
"""
IDLE_EXPLAINED = r"""
$ --path /perhaps
rule perhaps: skipped because user and header X-Key are missing; 3/minute as perhaps; cost 1; act deny
allowed: rule perhaps is skipped

$ --path /perhaps --user ann
rule perhaps: skipped because header X-Key is missing; 3/minute as perhaps; cost 1; act deny
allowed: rule perhaps is skipped

$ --path /dry
rule dry: counted by 127.0.0.1; 3/minute as dry; cost 1; act observe
allowed: rule dry only observes

$ --path /both
rule perhaps: skipped because user and header X-Key are missing; 3/minute as perhaps; cost 1; act deny
rule dry: counted by 127.0.0.1; 3/minute as dry; cost 1; act observe
allowed: rule perhaps is skipped; rule dry only observes

$ --path /strict
rule strict: skipped because user is missing; 3/minute as strict; cost 1; act observe
allowed: rule strict is skipped

$ --path /free --plan internal
rule free: counted by 127.0.0.1; no limit for this plan; cost 1; act deny
allowed: rule free has no limit for this plan

$ --path /known --ip ''
rule known: counted by \m; 3/minute as known; cost 1; act deny
binding: rule known, 3/minute as known
with nothing spent yet: allowed, 2 of 3 left after it
"""


@pytest.mark.parametrize(("request_", "said"), transcript(IDLE_EXPLAINED))
def test_explain_ends_with_a_verdict_also_where_nothing_was_asked(capsys, tmp_path, request_, said):
    """Skipped, only watched or without a limit: the request passes, and the last line says why."""
    made = tmp_path / "policy.yaml"
    made.write_text(IDLE)
    code, out, err = run(capsys, "explain", str(made), *request_)
    assert (code, out.splitlines()[1:], err) == (0, said, "")


def test_explain_of_a_token(capsys, tmp_path, monkeypatch):
    """A genuine one is counted by what it claims; an invented one is a part that is missing."""
    jwt = pytest.importorskip("jwt")
    monkeypatch.setenv("TOKEN_SECRET", "s" * 32)
    made = tmp_path / "policy.yaml"
    made.write_text(
        "tokens: {key: {env: TOKEN_SECRET}, algorithms: HS256}\n"
        "rules: [{name: api, key: {claim: sub}, missing: skip, limits: 3/minute}]\n"
    )
    told = []
    for secret in ("s" * 32, "x" * 32):
        token = jwt.encode({"sub": "ann"}, secret, "HS256")
        told.append(run(capsys, "explain", str(made), "--header", f"Authorization: Bearer {token}")[1].splitlines()[1])
    assert told == [
        "rule api: counted by ann; 3/minute as api; cost 1; act deny",
        "rule api: skipped because claim sub is missing; 3/minute as api; cost 1; act deny",
    ]


def test_check_warns_of_what_works_and_is_probably_not_wanted(capsys, tmp_path):
    """With its line where that is known; still no mistake, and exit code 0. Explaining says nothing of it."""
    made = tmp_path / "policy.yaml"  # with a limit of its own: one that was read before in this process warns no more
    made.write_text(
        "rules:\n- name: tokens\n  key: ip\n  limits: 90/minute by sliding-log\n  cost: {after: {header: X-Cost}}\n"
        "- {name: few, key: ip, limits: 7/minute by sliding-window}\n"
    )
    assert run(capsys, "check", str(made)) == (0, (
        f"{made}: 2 rules, no mistakes\n"
        "warning: 7/minute by sliding-window: below 10 the two-counter estimate is coarse; token-bucket, "
        "sliding-window/60 or sliding-log serve small limits better\n"
        "warning: policy.yaml:4: rule tokens: a cost that rises after the response is charged to "
        "90/minute by sliding-log as tokens only as far as there is room; use a token bucket\n"
    ), "")  # fmt: skip
    code, out, err = run(capsys, "explain", str(made))
    assert (code, err) == (0, "") and "warning" not in out


REPEATED = """
rules:
- {name: api, key: {header: x-key}, limits: 5/minute%s}
- {name: all, key: everyone, limits: 9/minute}
"""


@pytest.mark.parametrize(
    ("repeated", "said"),
    [
        (
            "",
            [
                "rule api: refused because the header x-key was sent more than once, with different values; "
                "repeated: refuse",
                "rule all: counted by *; 9/minute as all; cost 1; act deny",
                "refused (400): The header x-key was sent more than once, with different values.",
            ],
        ),
        (
            ", repeated: each",
            [
                "rule api: counted by {a} and by {b}; 5/minute as api; cost 1; act deny",
                "rule all: counted by *; 9/minute as all; cost 1; act deny",
                "binding: rule api, 5/minute as api",
                "with nothing spent yet: allowed, 4 of 5 left after it",
            ],
        ),
        (
            ", repeated: last",
            [
                "rule api: counted by {b}; 5/minute as api; cost 1; act deny",
                "rule all: counted by *; 9/minute as all; cost 1; act deny",
                "binding: rule api, 5/minute as api",
                "with nothing spent yet: allowed, 4 of 5 left after it",
            ],
        ),
    ],
)
def test_explain_of_a_header_that_is_said_twice(capsys, tmp_path, repeated, said):
    """Refused, or counted as the policy says."""
    made = tmp_path / "policy.yaml"
    made.write_text(REPEATED % repeated)
    code, out, err = run(capsys, "explain", str(made), "--header", "x-key:a", "--header", "x-key:b")
    assert (code, err) == (0, "")
    assert out.splitlines()[1:] == [each.format(a=hashed("a"), b=hashed("b")) for each in said]


@pytest.mark.parametrize("field", ["plan: {trusted_header: x-key}", "deny: {cookie: {c: d}}"])
def test_explain_of_what_no_rule_can_say(capsys, tmp_path, field):
    """A plan said twice, or more cookies than are read: refused before any rule."""
    made = tmp_path / "policy.yaml"
    made.write_text(f"{field}\nrules:\n- {{key: ip, limits: 5/minute}}\n")
    arguments = ["--header", "x-key:a", "--header", "x-key:b", "--header", "cookie:" + "a" * 70_000]
    code, out, err = run(capsys, "explain", str(made), "--trusted-proxy", "127.0.0.1", *arguments)
    assert (code, err) == (0, "")
    assert out.splitlines()[1].startswith("refused (400): The ")


def test_explain_takes_a_query_of_its_own_or_that_of_the_path(capsys, tmp_path):
    """`--query` goes before what follows the question mark."""
    made = tmp_path / "policy.yaml"
    made.write_text("rules: [{name: api, key: {query: user}, limits: 3/minute}]\n")
    for more, user in ((), "bob"), (("--query", "user=ann"), "ann"):
        _, out, _ = run(capsys, "explain", str(made), "--path", "/?user=bob", *more)
        assert f"counted by {hashed(user)};" in out


def test_explain_never_shows_a_secret(capsys, file):
    """A header that is a part of the key is shown as its hash."""
    arguments = ["explain", file, "--path", "/login", "--method", "POST", "--header", "Authorization: Bearer sk-123"]
    code, out, _ = run(capsys, *arguments)
    assert code == 0 and "rule login: counted by 127.0.0.1|\\h" in out
    assert "sk-123" not in out


@pytest.mark.parametrize(
    ("extra", "said"),
    [
        (["--header", "no colon"], "headgate: --header is NAME:VALUE; got 'no colon'\n"),
        (["--header", ": x"], "headgate: --header is NAME:VALUE; got ': x'\n"),
        (["--path", "login"], "headgate: --path is the path of a request, such as /login; got 'login'\n"),
        (
            ["--trusted-proxy", "10.0.0.1/8"],
            "headgate: 10.0.0.1/8 has bits set beyond its prefix; write 10.0.0.0/8, or 10.0.0.1 for that one address\n",
        ),
    ],
)
def test_what_cannot_be_read_is_told(capsys, file, extra, said):
    """On stderr, exit code 1."""
    assert run(capsys, "explain", file, *extra) == (1, "", said)


def test_check_from_a_shell(file):
    """As people run it."""
    command = [sys.executable, "-m", "headgate", "policy", "check", file]
    done = subprocess.run(command, capture_output=True, text=True, env=dict(os.environ), check=False)
    assert (done.returncode, done.stdout) == (0, f"{file}: 7 rules, no mistakes\n{ADVICE}")


def test_schema_prints_what_editors_need(capsys):
    """In JSON, and whole."""
    code, out, err = run(capsys, "schema")
    assert (code, json.loads(out), err) == (0, json.loads(json.dumps(schema())), "")
