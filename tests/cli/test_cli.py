"""The `headgate` command."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

from headgate import __version__
from headgate.cli import demo, main
from headgate.engine import NATIVE

ENVIRONMENT = dict(os.environ) | ({} if NATIVE else {"HEADGATE_PURE": "1"})
"""Where the native engine was not built, commands say so once on stderr unless the pure one is asked for."""
ESCAPES = re.compile(r"\x1b\[\d+m")


def table_rows(page: str) -> dict[str, list[str]]:
    """The rows of the demo's table by their first cell; of rows with the same, the last."""
    rows = (re.split(r"\s{2,}|(?<=\d) (?=no)", line.strip()) for line in page.splitlines())
    return {row[0]: row[1:] for row in rows}


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """`python -m headgate` with its output captured."""
    command = [sys.executable, "-m", "headgate", *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=ENVIRONMENT | environment, check=False)


def test_demo_totals():
    """Of 20 requests under 5 per 10 s each algorithm passes a known number, and a known most in any 10 s."""
    rows = table_rows(demo.demo(coloured=False))
    assert demo.NAMES == (
        "token-bucket",
        "gcra",
        "leaky-bucket",
        "fixed-window",
        "sliding-window",
        "sliding-log",
        "sliding-window/5",
    )
    assert rows["passed of 20"] == ["12", "12", "12", "15", "12", "10", "10"]
    assert rows["most in 10 s"] == ["9", "9", "9", "10", "9", "5", "5"]


def test_demo_cells():
    """A cell is yes, or no and the exact seconds to wait: the last requests around the seam, checked by hand."""
    rows = table_rows(demo.demo(coloured=False))
    assert rows["9.0 s"] == ["no 2", "no 2", "no 2", "no 1", "no 1.000001", "no 10", "no 9.000001"]
    assert rows["10.5 s"] == ["no 0.5", "no 0.5", "no 0.5", "yes", "no 1.500001", "no 8.5", "no 7.500001"]
    assert rows["20.0 s"] == ["yes"] * 7


def test_demo_waits_are_true():
    """Every wait shown is what brings the next yes: no later request passes before the shortest wait is over."""
    for name in demo.NAMES:
        answers = demo.play(name)
        for at, answer in enumerate(answers):
            early = [later for later in answers[at:] if later.time < answer.time + answer.retry_after]
            assert not any(later.allowed for later in early), (name, answer)


def test_demo_is_told_in_order():
    """Every request is one row, in the order of time, with a rule at both seams."""
    lines = demo.demo(coloured=False).splitlines()
    times = [float(found[1]) for line in lines if (found := re.match(r" ?(\d+\.\d) s ", line))]
    assert times == list(demo.TIMES) == sorted(demo.TIMES)
    assert [line[:24] for line in lines if line.startswith("-- ")] == [
        "-- 10 s: a window ends -",
        "-- 20 s: a window ends -",
    ]


def test_demo_fits_a_terminal():
    """No line is longer than 100 columns, and all of it is ASCII."""
    page = demo.demo(coloured=False)
    assert max(map(len, page.splitlines())) <= 100
    assert page.isascii()


def test_demo_in_colour():
    """Colours only add escapes: green for yes, red for no, and the same text."""
    page = demo.demo(coloured=True)
    assert ESCAPES.sub("", page) == demo.demo(coloured=False)
    allowed = sum(answer.allowed for name in demo.NAMES for answer in demo.play(name))
    assert page.count("\x1b[32myes\x1b[0m") == allowed
    assert page.count("\x1b[31mno ") == len(demo.NAMES) * len(demo.TIMES) - allowed


def test_demo_is_plain_without_a_terminal(capsys):
    """Into a pipe or a file go no escapes."""
    assert main(["demo"]) == 0
    assert capsys.readouterr().out == demo.demo(coloured=False) + "\n"


@pytest.mark.skipif(sys.platform == "win32", reason="no pseudo-terminals")
@pytest.mark.parametrize(("no_color", "coloured"), [(None, True), ("", True), ("1", False)])
def test_demo_on_a_terminal(no_color, coloured):
    """On a terminal the table is coloured, unless NO_COLOR is set to something."""
    ours, theirs = os.openpty()
    environment = {name: value for name, value in ENVIRONMENT.items() if name != "NO_COLOR"}
    environment |= {} if no_color is None else {"NO_COLOR": no_color}
    with subprocess.Popen([sys.executable, "-m", "headgate", "demo"], stdout=theirs, env=environment) as process:
        os.close(theirs)
        shown = read_all(ours).replace("\r\n", "\n")
    assert process.returncode == 0
    assert shown == demo.demo(coloured=coloured) + "\n"


def read_all(terminal: int) -> str:
    """What a pseudo-terminal shows until its other side is closed, which Linux tells as an error."""
    shown = b""
    with open(terminal, "rb", buffering=0) as stream:
        try:
            while part := stream.read(4096):
                shown += part
        except OSError:
            pass
    return shown.decode()


def test_demo_survives_a_closed_pipe():
    """`headgate demo | head -1` ends without a complaint."""
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "headgate", "demo"]
    ended = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, env=ENVIRONMENT, check=False)
    os.close(writer)
    assert (ended.returncode, ended.stderr) == (0, b"")


def test_version():
    """`--version` prints the name and the version."""
    ended = run("--version")
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, f"headgate {__version__}\n", "")


@pytest.mark.parametrize("arguments", [[], ["dance"], ["demo", "extra"], ["--loud"]], ids=repr)
def test_usage_errors(arguments):
    """A command that cannot be read ends with 2, says why on stderr and prints nothing on stdout."""
    ended = run(*arguments)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr.startswith("usage: headgate ")
    assert "headgate: error: " in ended.stderr


def test_help_names_every_verb():
    """`--help` lists the verbs."""
    ended = run("--help")
    assert ended.returncode == 0
    assert re.search(r"^ +demo +the same requests", ended.stdout, re.MULTILINE)


@pytest.mark.parametrize("pure", ["0", "1"])
def test_demo_is_the_same_on_both_engines(pure):
    """Virtual time: the page does not depend on the engine, or on when it is printed."""
    assert run("demo", HEADGATE_PURE=pure).stdout == demo.demo(coloured=False) + "\n"


def test_overload_prints_a_table():
    """A scenario with one estimator and one seed; an unknown scenario gets the nearest name."""
    shown = run("overload", "slow-few", "--estimator", "adaptive", "--seeds", "1")
    assert (shown.returncode, shown.stderr) == (0, "")
    assert shown.stdout.splitlines()[1].startswith("slow-few ")
    listed = run("overload", "--list")
    assert "hang             a dependency hangs for 20 s" in listed.stdout
    wrong = run("overload", "flod-5x")
    assert (wrong.returncode, wrong.stderr) == (1, "headgate: unknown scenario 'flod-5x': did you mean 'flood-5x'?\n")
