"""The report as text: every figure is in it, and nothing that a stranger wrote becomes markup."""

from __future__ import annotations

import json
import re
from base64 import b64encode
from dataclasses import replace
from hashlib import sha256

import pytest

from headgate.clock import SECOND
from headgate.lab.comparison import Series
from headgate.lab.report import html, versions
from headgate.lab.report.markup import data_block
from headgate.version import __version__
from tests.lab.report.reading import Reader
from tests.lab.report.samples import (
    ABOUT,
    COMPARISON,
    EVERY,
    HOSTILE,
    LIMITS,
    NOTHING,
    POLICY,
    QUEUES,
    START,
    TURNED,
)

pytestmark = pytest.mark.engineless

EVERY_PAGE = pytest.mark.parametrize("result", EVERY.values(), ids=EVERY)


@EVERY_PAGE
def test_only_known_elements_and_attributes(result):
    """Names of clients and files never become elements, handlers or addresses; there is no link to anything."""
    page = Reader(html(result, ABOUT))
    assert {"img", "a", "link", "iframe", "object", "form"}.isdisjoint({tag for tag, _ in page.elements})
    attributes = {name for _, known in page.elements for name in known}
    assert not {name for name in attributes if name.startswith("on")}
    assert {"src", "href", "style", "action"}.isdisjoint(attributes)


@EVERY_PAGE
def test_the_policy_lists_the_hash_of_every_script_and_style(result):
    """A browser runs no script and no style but these, and asks for nothing."""
    page = Reader(html(result, ABOUT))
    hashes = {"script": "", "style": ""}
    for tag, known, text in page.inline:
        if known.get("type") != "application/json":
            hashes[tag] += f" 'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"
    scripts = hashes["script"] or " 'none'"
    [policy] = [
        known["content"] for tag, known in page.elements if known.get("http-equiv") == "Content-Security-Policy"
    ]
    assert policy == (
        f"default-src 'none'; style-src{hashes['style']}; script-src{scripts}; base-uri 'none'; form-action 'none'"
    )


@EVERY_PAGE
def test_the_same_values_give_the_same_bytes(result):
    """Two reports of one result can be compared by their hashes."""
    assert html(result, ABOUT) == html(result, ABOUT)


@EVERY_PAGE
def test_text_of_strangers_is_printable(result):
    """Marks that turn the direction of text are written out, so that a name cannot pose as another one."""
    text = html(result, ABOUT)
    assert not set(text) & set("\u202e\u2069\u2028\u2029")
    assert all(each.isprintable() or each == "\n" for each in text)


def test_data_cannot_end_its_element():
    """The script reads back what was written, whatever stands in it, from an element that has no sign of HTML."""
    value = {HOSTILE: [TURNED, "\u2029", "<!--", "]]>", None, 1.5]}
    block = data_block("data", value)
    inner = block.removeprefix('<script type="application/json" id="data">').removesuffix("</script>")
    assert not set(inner) & set("<>&\u2028\u2029")
    assert json.loads(inner) == value


def test_the_data_of_the_plots():
    """The script gets the bins as they are, in seconds, and the finding of each choice."""
    [data] = [json.loads(text) for _, known, text in Reader(html(COMPARISON, ABOUT)).inline if "type" in known]
    assert (data["start"], data["width"], data["offered"], data["requests"]) == (
        START / SECOND, 60, [100, 400, 300, 200], 1_000,
    )  # fmt: skip
    assert data["limits"][1] == {
        "name": "fixed-window", "compared": True, "amount": 60, "bytes": 24, "period": "60 s", "refused": [0, 20, 5, 0],
        "above": [0, 48, 3, 0], "wrong": {"same": [12, 0], "own": [20, 5], "offered": [30, 1]},
        "finding": "fixed-window refused 25 of 1,000 requests (2.50 %), of 1 client. The most in one bin: 20, from "
        "2016-02-20 20:28:00 UTC on.",
    }  # fmt: skip
    assert data["limits"][0]["wrong"]["offered"] is None
    assert data["findings"]["offered"] == (
        "fixed-window needs 24 bytes a client and answers 31 of 1,000 requests wrongly (3.10 %). "
        "No figures: sliding-log, token-bucket."
    )


def test_every_figure_stands_in_a_table():
    """Readers who see no plots, and those who copy numbers, find all of them."""
    page = Reader(html(COMPARISON, ABOUT))
    assert page.tables["Every figure of every limit"] == [
        ["", "refused", "most in 60 s", "same past", "own past", "offered", "cost"],
        ["limit", "requests", "share", "clients", "units", "of limit", *["wrongly passed", "wrongly refused"] * 3,
         "bytes a client", "ns a decision"],
        ["sliding-log", "40", "4.00 %", "2", "60", "1.0x", "0", "0", "0", "0", "-", "-", "520", "81"],
        ["fixed-window", "25", "2.50 %", "1", "108", "1.8x", "12", "0", "20", "5", "30", "1", "24", "71"],
        ["token-bucket", "10", "1.00 %", "1", "119", "2.0x", "30", "0", "31", "1", "-", "-", "16", "63"],
    ]  # fmt: skip
    assert page.tables["Clients refused most"][1:3] == [
        [HOSTILE, "", "30", "300", "10.0 %", "2016-02-20 20:27:01", "2016-02-20 20:28:01", "100 %"],
        ["\\u202egnp.exe\\u2069\\u2028'\"&{{title}}", "", "9", "80", "11.2 %", "2016-02-20 20:27:02",
         "2016-02-20 20:28:02", "1.25 %"],
    ]  # fmt: skip
    assert page.tables["Clients refused most"][3][0] == "2001:db8:2001:db8:2001:db8:2001:db8:2..."


def test_each_plot_has_its_finding_as_a_sentence():
    """Readers who do not see the plots read the findings."""
    assert Reader(html(COMPARISON, ABOUT)).findings == [
        "sliding-log refused 40 of 1,000 requests (4.00 %), of 2 clients. The most in one bin: 30, from "
        "2016-02-20 20:28:00 UTC on.",
        "token-bucket let one client pass 119 in 60 s, 2.0x its amount of 60. Never above: sliding-log.",
        "token-bucket needs 16 bytes a client and answers 30 of 1,000 requests wrongly (3.00 %). "
        "sliding-log needs 520 and is never wrong.",
    ]


def test_what_makes_figures_doubtful_comes_first():
    """Remarks, lines that were left out, spread stamps and forgotten states are told before the first figure."""
    text = html(COMPARISON, ABOUT)
    notes = text[text.index('<div class="notes"') : text.index('<section id="figures"')]
    assert Reader(notes.strip()).paragraphs == [
        "A remark & more.",
        "8 of 1,010 lines could not be read: not in any figure.",
        "2 requests came too late to be sorted: not in any figure.",
        "The stamps are whole seconds: the requests of a second were spread over it, in their order.",
        "token-bucket: the states of 3 clients did not fit in memory: its figures are not exact. "
        "Replay fewer clients, or a smaller limit.",
    ]


def test_the_report_tells_how_to_have_it_again():
    """Command, seed, time, versions, and the hash of each input that was read to its end."""
    page = Reader(html(COMPARISON, ABOUT))
    assert page.terms[-6:] == [
        ["Command", f"headgate replay '{HOSTILE}\\u202egnp.exe\\u2069\\u2028'\"&{{{{title}}}}.log' --limit 60/minute"],
        ["Seed", "7"],
        ["Made", "2026-11-17 06:20:00 UTC"],
        ["headgate", "0.1.0"],
        ["Python", "CPython 3.11.7"],
        ["engine", "native"],
    ]
    assert page.tables["Inputs"] == [
        ["file", "format", "stamps", "bytes", "SHA-256"],
        [f"{HOSTILE}.gz", "combined", "date", "12,345", "ab" * 32],
        ["-", "combined", "date", "7", "not read to its end"],
    ]
    assert page.tables["Unreadable lines"][1:] == [["-", "4,711", "no time", f"{HOSTILE} GET /"]]
    assert page.paragraphs[-1] == (
        "1,010 lines: 1,000 requests, 8 unreadable, 2 too late. Out of order: 3 lines. The log lacks: user."
    )


def test_versions_are_those_of_this_process():
    """The command line need not find out what runs it."""
    found = versions()
    assert list(found) == ["headgate", "Python", "engine"]
    assert found["headgate"] == __version__
    assert found["engine"] in ("native", "pure")


def test_a_log_without_chance_has_no_seed():
    """The word does not stand there without a number."""
    names = [name for name, _ in Reader(html(COMPARISON, replace(ABOUT, seed=None))).terms]
    assert "Seed" not in names


def test_queues_are_told_by_their_waits():
    """A queue has no wrong answers and nothing above its limit; it has dropped requests and waits."""
    page = Reader(html(QUEUES, ABOUT))
    assert page.tables["Queues"][1:] == [
        ["10/second queue 50", "25", "2.50 %", "3", "10 in 1 s", "0.000 s", "1.250 s", "4.900 s", "", "16", "900"]
    ]
    ids = {known.get("id") for _, known in page.elements}
    assert {"queues", "time"} <= ids
    assert {"figures", "overshoot", "accuracy", "clients"}.isdisjoint(ids)


def test_no_requests_no_plots():
    """A log without requests gives a page without scripts, which says so."""
    page = Reader(html(NOTHING, ABOUT))
    assert "No requests." in page.paragraphs
    assert [tag for tag, *_ in page.inline] == ["style"]


def test_a_policy_is_told_rule_by_rule():
    """Every count of a rule, the clients that a change refuses or lets in, and the rules that a log cannot answer."""
    page = Reader(html(POLICY, ABOUT))
    assert page.tables[f"{HOSTILE}.yaml"][1:] == [
        ["login", "5/minute by sliding-log", "200", "", "8", "4.00 %", "0", "0", "0", "-", "2"],
        ["slow", "10/second queue 50", "300", "", "0", "0 %", "5", "4", "6", "1.250 s", "3"],
    ]
    assert page.tables["Newly refused"][1] == [HOSTILE, "", "4", "300", "1.33 %", "50.0 %"]
    assert page.tables["Not replayed"][1:] == [["tenant", "header x-tenant"]]
    assert "12 of 1,000 requests refused (1.20 %), 4 of them by deny." in page.paragraphs
    assert "old.yaml: 1 key did not fit in memory: its figures are not exact." in page.paragraphs
    assert "0 requests of 0 clients." in page.paragraphs


def test_a_policy_without_requests_has_no_plot():
    """There is nothing to draw, and no script in the page."""
    nothing = replace(POLICY, requests=0, clients=0, series=Series(0, SECOND, (), ((), ()), ((), ())))
    assert [tag for tag, *_ in Reader(html(nothing, ABOUT)).inline] == ["style"]


def test_a_report_stays_small():
    """Five limits over as many bins as there are at most, with numbers of five digits: under 150 KB."""
    row = tuple(range(10_000, 10_480))
    series = Series(START, 3600 * SECOND, row, (row,) * 5, (row,) * 5)
    result = replace(COMPARISON, limits=(*LIMITS, *LIMITS[1:]), series=series)
    assert len(html(result, ABOUT).encode()) < 150_000


def luminance(colour):
    """How light a colour is, as WCAG defines it."""
    digits = colour * 2 if len(colour) == 3 else colour
    parts = [int(digits[at : at + 2], 16) / 255 for at in (0, 2, 4)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize(
    ("text", "under"), [("ink", "ground"), ("ink", "panel"), ("quiet", "ground"), ("quiet", "panel")]
)
def test_text_can_be_read(scheme, text, under):
    """Every colour of text is at least five times as light as what is under it, or the reverse."""
    [style] = [text for tag, _, text in Reader(html(NOTHING, ABOUT)).inline]
    light, dark = style.split("@media screen and (prefers-color-scheme: dark)")
    found = dict(re.findall(r"--(\w+): #(\w+);", light if scheme == "light" else dark))
    one, other = sorted((luminance(found[text]), luminance(found[under])))
    assert (other + 0.05) / (one + 0.05) > 5
