"""Bad lines: counted, the first three kept, escaped; a file of which half is bad is given up."""

from __future__ import annotations

import pytest

from headgate.errors import InvalidCall
from headgate.lab.logs import BadLine
from headgate.wording import printable
from tests.lab.logs.support import common, common_log, drained, log_of

pytestmark = pytest.mark.engineless


def test_bad_lines_are_counted_and_the_first_three_kept():
    """A bad line is told with file, number, reason and its beginning, in which nothing steers a terminal."""
    bad = [
        "\x1b[31mred\n",
        'a - - [20/Feb/2016:25:00:00 +0000] "GET / HTTP/1.1" 200 5\n',
        common(3)[:52] + "\n",
        "\0\n",
    ]
    log = drained(log_of(common_log(1, 2) + "\n" + "".join(bad) + common_log(4, 5, 6)))
    facts = log.facts
    assert (facts.lines, facts.requests, facts.unreadable, facts.late) == (9, 5, 4, 0)
    assert facts.bad_lines == (
        BadLine("BytesIO", 4, "it does not begin with client, identity and user", r"'\x1b[31mred'"),
        BadLine("BytesIO", 5, "'20/Feb/2016:25:00:00 +0000' has no time of day", facts.bad_lines[1].excerpt),
        BadLine("BytesIO", 6, "it has no status after the request", facts.bad_lines[2].excerpt),
    )
    assert facts.bad_lines[1].excerpt == """'a - - [20/Feb/2016:25:00:00 +0000] "GET / HTTP/1.1" 200 5'"""


def test_half_of_a_short_file_is_too_much():
    """One bad line of three is counted; two of four are refused, with the nearest format and a line."""
    assert drained(log_of(common_log(1, 2) + "x\n")).facts.unreadable == 1
    with pytest.raises(InvalidCall) as told:
        drained(log_of(common_log(1, 2) + "x\ny\x1b\n"))
    assert str(told.value) == (
        "BytesIO cannot be read: 2 of its first 4 lines are not of the nearest format, common; "
        "line 3 is 'x': it does not begin with client, identity and user"
    )


def test_a_long_file_is_given_up_on_the_way():
    """After a thousand lines, a file is given up as soon as half of what was read is bad; not after its last line."""
    log = log_of(common_log(*range(600)) + "bad line\n" * 1_000_000)
    with pytest.raises(InvalidCall, match="lines are not of the nearest format, common; line 601 is 'bad line'"):
        drained(log)
    assert log.facts.lines < 20_000


def test_a_long_line_is_unreadable_in_bounded_memory():
    """A line of more than 65,536 bytes is counted as one bad line; one of just that many bytes is read."""
    fits = common(2, path="/" + "x" * (65_536 - len(common(2)) + 1))
    assert len(fits) == 65_537  # with its end
    too_long = common(3, path="/" + "x" * (65_536 - len(common(3)) + 2))
    log = log_of(common(1) + fits + too_long + common(4) + "y" * 1_000_000 + "\n" + common(5) + "z" * 200_000)
    assert [request.time % 60_000_000 // 1_000_000 for request in log] == [21, 22, 24, 25]
    facts = log.facts
    assert (facts.lines, facts.unreadable) == (7, 3)
    assert [(bad.number, bad.reason, len(bad.excerpt)) for bad in facts.bad_lines] == [
        (3, "it has more than 65,536 bytes", 80),
        (5, "it has more than 65,536 bytes", 80),
        (7, "it has more than 65,536 bytes", 80),
    ]


def test_bytes_that_are_no_text_stay_different():
    """Clients and paths may hold any byte; those that are no UTF-8 are read as escapes, so that keys stay apart."""
    line = common(1, "#", "/#").encode()
    log = log_of(b"".join(line.replace(b"#", each) for each in (b"\xff", b"\xfe", "ü".encode(), b"\x9b")))
    assert [(request.key, request.path) for request in log] == [
        ("\\xff", "/\\xff"),
        ("\\xfe", "/\\xfe"),
        ("ü", "/ü"),
        ("\\x9b", "/\\x9b"),
    ]


@pytest.mark.parametrize(
    ("text", "escaped"),
    [
        ("/plain ü", "/plain ü"),
        ("\x1b]0;title\x07", r"\x1b]0;title\x07"),
        ("a\r\nb\u202e\x9b", r"a\r\nb\u202e\x9b"),
        ("\ud800", r"\ud800"),
    ],
)
def test_texts_of_a_log_are_escaped_for_a_terminal(text, escaped):
    """Control characters, marks that turn the direction of writing, and lone surrogates become escapes."""
    assert printable(text) == escaped
