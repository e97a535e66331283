"""`headgate advise`: flags, questions and logs."""

from __future__ import annotations

import io
import os
import subprocess
import sys

import pytest

from headgate.cli import advise
from headgate.lab import Needs, burst_curve, recommend
from tests.cli.test_cli import ENVIRONMENT, read_all

TIME = "[12/May/2024:00:00:{:02} +0000]"


@pytest.fixture
def log(tmp_path):
    """Six requests of one client within six seconds, the last one answered with an error."""
    path = tmp_path / "access.log"
    lines = (
        f'10.0.0.1 - - {TIME.format(second)} "GET / HTTP/1.1" {200 + second // 5 * 300} 5\n' for second in range(6)
    )
    path.write_text("".join(lines))
    return str(path)


def test_without_flags_the_defaults_are_advised(command):
    """Where nobody can be asked, 100/minute for 10,000 clients is the start."""
    assert command("advise") == (0, f"{recommend(Needs())}\n", "")


def test_every_flag_is_a_need(command):
    """The flags are the fields of the needs."""
    _, printed, _ = command(
        "advise", "--rate", "5 per 2 hours", "--bursts", "no", "--exactness", "exact", "--smooth", "No",
        "--clients", "2,000_000", "--memory", "64 MiB", "--store", "redis",
    )  # fmt: skip
    needs = Needs(5, 7200 * 10**6, False, "exact", False, 2_000_000, 64 * 2**20, "redis")
    assert printed == f"{recommend(needs)}\n"


@pytest.mark.parametrize(
    ("flag", "value", "problem"),
    [
        ("rate", "fast", "--rate: cannot read the limit 'fast'; write for instance 10/minute, 5 per 2 hours"),
        ("rate", "5/minute burst 2",
         "--rate is an amount and a period, the rest is advised: write 100/minute; got '5/minute burst 2'"),
        ("rate", "5 in flight",
         "--rate is an amount and a period, the rest is advised: write 100/minute; got '5 in flight'"),
        ("bursts", "maybe", "--bursts is yes or no; got 'maybe'"),
        ("smooth", "", "--smooth is yes or no; got ''"),
        ("exactness", "exakt", "--exactness is rough or close or exact; got 'exakt': did you mean 'exact'?"),
        ("clients", "many", "--clients is a whole number from 1, as in 2_000_000; got 'many'"),
        ("clients", "0", "--clients is a whole number from 1, as in 2_000_000; got '0'"),
        ("memory", "much", "--memory is a number of bytes, as in 256MB or 1GiB; got 'much'"),
        ("memory", "0", "--memory is a number of bytes, as in 256MB or 1GiB; got '0'"),
        ("store", "redi", "--store is memory or shared or redis; got 'redi': did you mean 'redis'?"),
        ("protect", "1m", "--protect needs a log: write headgate advise access.log --protect ..."),
        ("refuse-at-most", "1%", "--refuse-at-most needs a log: write headgate advise access.log --refuse-at-most ..."),
    ],
)  # fmt: skip
def test_a_wrong_flag_says_what_to_write(command, flag, value, problem):
    """Each flag has its own words, and the exit code is 1."""
    code, printed, complained = command("advise", f"--{flag}", value)
    assert (code, printed) == (1, "")
    assert complained.startswith(f"headgate: {problem}")


@pytest.mark.parametrize(
    ("text", "size"),
    [("1000", 1000), ("1kB", 1000), ("2MB", 2_000_000), ("1GiB", 2**30), ("3 mib", 3 * 2**20), ("1T", 10**12)],
)
def test_bytes_are_read_with_their_units(text, size):
    """MB is a million, MiB is 2**20."""
    assert advise.read_memory(text) == {"memory": size}


def test_a_log_is_measured(command, log):
    """Six requests in five seconds need a burst of six at 1/minute; one client shall not be refused."""
    code, printed, complained = command("advise", log)
    assert (code, complained) == (0, "")
    rows = [(second * 10**6, "10.0.0.1", 1, "", "", 0) for second in range(6)]
    assert printed.endswith(str(burst_curve(rows)) + "\n")
    assert f"{log}: common, 6 lines" in printed
    assert "1/minute burst 6" in printed.splitlines()


def test_the_flags_of_a_log(command, log):
    """The ladder, the protected period and the share of clients."""
    _, printed, _ = command("advise", log, "--rates", "30, 60", "--protect", "1h", "--refuse-at-most", "0.25 %")
    lines = printed.splitlines()
    assert "rate     99 %  99.5 %  99.75 %  99.9 %  most in any hour" in lines
    assert "30/hour burst 6" in lines
    assert "That is the lowest rate of the ladder: try lower ones with --rates." in lines


@pytest.mark.parametrize(
    ("options", "lines"),
    [
        ((), ["    key: ip"]),
        (("--key", "user"), ["    key: user"]),
        (("--key", "tenant"), ["    key: ip  # write the key that the log has as 'tenant'"]),
        (("--cost", "n"), ["    key: ip", "    # write the cost that the log has as 'n'"]),
    ],
)
def test_the_policy_counts_as_the_log_was_read(command, tmp_path, options, lines):
    """A limit for users is no limit for addresses; a field that only the log has is asked for."""
    path = tmp_path / "log.csv"
    path.write_text("ts,user,tenant,n\n0,ann,a,3\n1,bob,b,1\n")
    _, printed, _ = command("advise", str(path), "--fields", "time=ts:s,key=user", *options)
    policy = printed.splitlines()[printed.splitlines().index("Policy") + 1 :]
    assert policy[3:-1] == lines
    (tmp_path / "policy.yaml").write_text("\n".join(policy))
    assert command("policy", "check", str(tmp_path / "policy.yaml"))[0] == 0


def test_a_log_from_standard_input(command, log, monkeypatch):
    """A dash is standard input, as in other verbs; the fields are named as in other verbs."""
    text = b"ts,who,n\n0,ann,3\n1,bob,1\n"
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text)))
    _, printed, _ = command("advise", "-", "--fields", "time=ts:s,key=who,cost=n", "--refuse-at-most", "0%")
    assert "1/minute burst 3" in printed.splitlines()


@pytest.mark.parametrize(
    ("flag", "value", "problem"),
    [
        ("protect", "soon", "--protect: unknown unit in the time 'soon'"),
        ("refuse-at-most", "half", "--refuse-at-most is a share of clients below 100%, as in 0.5%; got 'half'"),
        ("refuse-at-most", "100%", "--refuse-at-most is a share of clients below 100%, as in 0.5%; got '100%'"),
        ("rates", "1,,2", "--rates are amounts in the protected period, as in 10,20,50; got '1,,2'"),
        ("rates", "0", "--rates are amounts in the protected period, as in 10,20,50; got '0'"),
        ("exactness", "exact", "--exactness is for advice without a log: leave out the flag, or the log"),
    ],
)
def test_a_wrong_flag_of_a_log_says_what_to_write(command, log, flag, value, problem):
    """The log is not read before its flags are."""
    code, printed, complained = command("advise", log, f"--{flag}", value)
    assert (code, printed) == (1, "")
    assert complained.startswith(f"headgate: {problem}")


def conversation(typed: str) -> tuple[int, str]:
    """Run the command on a terminal, type these lines, and return its exit code and all that the terminal shows."""
    ours, theirs = os.openpty()
    os.write(ours, typed.encode())
    command = [sys.executable, "-m", "headgate", "advise"]
    with subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=ENVIRONMENT) as process:
        os.close(theirs)
        shown = read_all(ours).replace("\r\n", "\n")
    return process.returncode, shown


@pytest.mark.skipif(sys.platform == "win32", reason="no pseudo-terminals")
def test_questions_on_a_terminal():
    """Each need is asked for; Enter takes the default, and a wrong answer is asked for again."""
    code, shown = conversation("5/minute\n\nexakt\nexact\n\n\n\n\n")
    assert code == 0
    assert shown.endswith(f"{recommend(Needs(5, exactness='exact'))}\n")
    for question in advise.QUESTIONS:
        assert f"{question.asks} [{question.default}] " in shown
    assert "--exactness is rough or close or exact; got 'exakt': did you mean 'exact'?\n" in shown


@pytest.mark.skipif(sys.platform == "win32", reason="no pseudo-terminals")
@pytest.mark.parametrize(
    ("typed", "problem"),
    [
        ("a\nb\nc\n", "headgate: --rate: cannot read the limit 'c'"),
        ("\x04", "headgate: no answer: give --rate, for instance --rate 100/minute"),
    ],
    ids=["three wrong answers", "end of input"],
)
def test_questions_end(typed, problem):
    """Nobody is asked for ever: after three wrong answers, or at the end of input, the flag is named."""
    code, shown = conversation(typed)
    assert code == 1
    assert problem in shown
