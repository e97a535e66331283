"""`headgate replay` and `headgate simulate`: the command around the lab."""

from __future__ import annotations

import io
import json
import sys

import pytest

TIME = "[12/May/2024:00:00:{:02} +0000]"


@pytest.fixture
def log(tmp_path):
    """Six requests of one client within six seconds."""
    path = tmp_path / "access.log"
    path.write_text("".join(f'10.0.0.1 - - {TIME.format(second)} "GET / HTTP/1.1" 200 5\n' for second in range(6)))
    return str(path)


def rows(printed):
    """The rows of the first table by their first words."""
    cells = (line.split() for line in printed.splitlines())
    return {cell[0]: cell[1:] for cell in cells if cell}


def test_a_limit_is_replayed_by_every_algorithm(command, log):
    """The command prints what was read, the table, and the clients that were refused."""
    code, printed, complained = command("replay", log, "--limit", "4/minute")
    assert (code, complained) == (0, "")
    assert printed.splitlines()[0] == "6 requests of 1 client, 2024-05-12 00:00:00 to 2024-05-12 00:00:05 UTC"
    assert f"{log}: common, 6 lines" in printed
    assert rows(printed)["sliding-log"][:5] == ["2", "1", "4", "0", "0"]
    assert rows(printed)["token-bucket"][:5] == ["2", "1", "4", "0", "0"]
    assert printed.splitlines()[-1].split() == [
        "10.0.0.1", "2024-05-12", "00:00:04", "2024-05-12", "00:00:05", "6", "2", "0%"
    ]  # fmt: skip


def test_several_limits_are_run_as_they_are(command, log):
    """Each has a row under its own name; a queue has a table of its own."""
    _, printed, _ = command("replay", log, "--limit", "4/minute", "--limit", "1/5s by gcra", "--limit", "1/10s queue 2")
    assert "1/5 seconds by gcra" in printed
    queue = next(line for line in printed.splitlines() if line.startswith("1/10 seconds queue 2"))
    assert queue.split()[4:][:8] == ["4", "1", "1", "0.000", "s", "9.000", "s", "9.000"]


def test_wrong_answers_are_shown_by_the_chosen_measure(command, log):
    """`--wrong offered` is told for windows only."""
    _, printed, _ = command("replay", log, "--limit", "4/minute", "--wrong", "offered")
    assert rows(printed)["fixed-window"][3:5] == ["0", "0"]
    assert rows(printed)["token-bucket"][3:5] == ["-", "-"]
    assert "(offered)" in printed


def test_every_figure_is_written_as_json(command, log, tmp_path):
    """The file has the limits by their texts, all measures, and the counts over time."""
    file = tmp_path / "out.json"
    code, printed, _ = command("replay", log, "--limit", "4/minute", "--json", str(file))
    assert code == 0 and printed.splitlines()[-1] == f"wrote {file}"
    written = json.loads(file.read_text())
    assert written["limits"][3]["limit"] == "4/minute by fixed-window"
    assert written["limits"][3]["own_past"] == {"passed": 0, "refused": 0}
    assert written["series"]["offered"] == [1] * 6
    assert written["log"]["lines"] == 6


def test_a_report_is_written_as_one_page(command, log, tmp_path):
    """The page has the figures and needs no other file."""
    file = tmp_path / "out.html"
    code, printed, _ = command("replay", log, "--limit", "4/minute", "--html", str(file))
    assert code == 0 and printed.splitlines()[-1] == f"wrote {file}"
    page = file.read_text()
    assert page.startswith("<!doctype html>") and "4/minute by 5 algorithms" in page
    assert "src=" not in page and "<link" not in page


def test_a_log_can_come_through_a_pipe(command, log, monkeypatch):
    """`-` is standard input."""
    with open(log, "rb") as file:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(file.read())))
    code, printed, _ = command("replay", "-", "--limit", "4/minute")
    assert code == 0 and printed.startswith("6 requests of 1 client")


def test_fields_of_a_csv_are_named(command, tmp_path):
    """Costs are units of the limit: 3 tokens and 3 more do not fit in 5."""
    (tmp_path / "calls.csv").write_text("ts,who,tokens\n1700000000.5,ann,3\n1700000001.5,ann,3\n")
    fields = "time=ts,key=who,cost=tokens"
    code, printed, _ = command("replay", str(tmp_path / "calls.csv"), "--fields", fields, "--limit", "5/minute")
    assert code == 0 and rows(printed)["sliding-log"][:3] == ["1", "1", "3"]


def test_lines_that_are_left_out_are_told_beside_those_out_of_order(command, tmp_path):
    """One stamp of the future: one line is earlier than the one before it, and all that follow it are left out."""
    stamps = ("00:00:01", "12:00:00", "00:00:02", "00:00:03", "00:00:04")
    path = tmp_path / "access.log"
    path.write_text("".join(f'10.0.0.1 - - [12/May/2024:{each} +0000] "GET / HTTP/1.1" 200 5\n' for each in stamps))
    _, printed, _ = command("replay", str(path), "--limit", "4/minute")
    assert printed.startswith("2 requests of 1 client")
    assert "  1 line came out of order; 3 requests more than 5 minutes late are left out" in printed.splitlines()


def test_a_policy_is_replayed_rule_by_rule(command, log, tmp_path):
    """`--policy` in the place of limits, and the change against the policy before it."""
    for name, amount in (("new", 4), ("old", 5)):
        (tmp_path / f"{name}.yaml").write_text(f"rules: [{{name: all, key: ip, limits: {amount}/minute}}]")
    code, printed, _ = command(
        "replay", log, "--policy", str(tmp_path / "new.yaml"), "--against", str(tmp_path / "old.yaml")
    )
    assert code == 0
    assert "new.yaml: 2 requests refused" in printed
    assert "1 request of 1 client: newly refused" in printed


def test_made_traffic_has_the_same_report(command):
    """The seam of a fixed window, and the same bytes for the same seed but for the measured time."""
    told = command("simulate", "--traffic", "seam", "--limit", "10/minute", "--for", "3m", "--seed", "7")
    assert told[0] == 0
    assert rows(told[1])["fixed-window"][:4] == ["0", "0", "2.0x", "20"]


def test_kinds_of_traffic_are_listed(command):
    """Without a log, a reader needs to know what there is."""
    code, printed, _ = command("simulate", "--list")
    assert code == 0
    assert [line.split()[0] for line in printed.splitlines()] == [
        "steady", "poisson", "batches", "seam", "impatient", "diurnal", "zipf", "rotating"
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("replay", "LOG"), "give --limit"),
        (("replay", "LOG", "--limit", "4/minute", "--policy", "p.yaml"), "give --limit"),
        (("replay", "LOG", "--limit", "4/minute", "--against", "p.yaml"), "--policy"),
        (("replay", "LOG", "--limit", "4/fortnight"), "fortnight"),
        (("replay", "LOG", "--limit", "0/minute"), "'0/minute' refuses every request: there is nothing to compare"),
        (("replay", "LOG", "--limit", "4/minute", "--fields", "time"), "NAME=FIELD"),
        (("replay", "LOG", "--limit", "4/minute", "--key", "tenant"), "tenant"),
        (
            ("replay", "/nowhere/a.log", "--limit", "4/minute", "--json", "/nowhere/out"),
            "/nowhere/out cannot be written",
        ),
        (("replay", "LOG", "--limit", "4/minute", "--html", "LOG"), "is the log: name another file to write"),
        (("simulate", "--traffic", "seam", "--limit", "4/minute", "--json", "-"), "- is standard input: name a file"),
        (("replay", "/nowhere/access.log", "--limit", "4/minute"), "/nowhere/access.log"),
        (("simulate", "--limit", "4/minute"), "--traffic"),
        (("simulate", "--traffic", "sem", "--limit", "4/minute"), "did you mean 'seam'"),
        (("simulate", "--traffic", "seam", "--limit", "4/minute", "--for", "soon"), "soon"),
        (("simulate", "--traffic", "seam", "--limit", "4/minute", "--clients", "0"), "clients"),
    ],
)
def test_mistakes_are_one_line_that_says_what_to_write(command, log, arguments, words):
    """Exit code 1, one line on stderr, nothing on stdout."""
    code, printed, complained = command(*(log if each == "LOG" else each for each in arguments))
    assert (code, printed) == (1, "")
    assert words in complained
    assert complained.count("\n") == 1
