"""Inputs: paths, pipes and open files, compressed or not, and files that are no logs."""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import sys
import threading
from typing import Any

import pytest

from headgate.errors import InvalidCall
from headgate.lab.logs import Input, Log
from tests.lab.logs.support import common, common_log, drained, log_of, read

pytestmark = pytest.mark.engineless
TEXT = common_log(0, 1, 1, 2)
PACKED = gzip.compress(TEXT.encode(), mtime=0)


def test_a_file_is_named_counted_and_hashed(tmp_path):
    """The facts of an input are those of the file as it is stored; the hash is there once its end was read."""
    path = tmp_path / "access.log"
    path.write_text(TEXT)
    log = Log([path])
    assert log.facts.inputs == (Input(str(path), "common", "date", 0, ""),)
    drained(log)
    assert log.facts.inputs == (
        Input(str(path), "common", "date", len(TEXT), hashlib.sha256(TEXT.encode()).hexdigest()),
    )


def test_gzip_is_known_by_its_first_bytes(tmp_path):
    """A compressed file needs no ending in its name; two files that were joined are read as one."""
    packed = gzip.compress(TEXT.encode()) + gzip.compress(common(9).encode())
    path = tmp_path / "access.log"
    path.write_bytes(packed)
    log = drained(Log([str(path)]))
    assert log.facts.requests == 5
    (file,) = log.facts.inputs
    assert (file.bytes, file.sha256) == (len(packed), hashlib.sha256(packed).hexdigest())
    assert read(packed) == read(TEXT + common(9))


def test_a_dash_is_the_standard_input(monkeypatch):
    """The standard input is read as bytes, compressed or not."""
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(gzip.compress(TEXT.encode()))))
    assert len(list(Log(["-"]))) == 4


def test_a_pipe_is_opened_once(tmp_path):
    """A path that is no plain file, such as that of a pipe, gives its lines once; none of them is lost."""
    path = tmp_path / "pipe"
    os.mkfifo(path)
    writer = threading.Thread(target=lambda: path.write_text(TEXT))
    writer.start()
    assert drained(Log([path])).facts.requests == 4
    writer.join()


def test_an_empty_file_among_others_is_no_mistake():
    """The log of a server that was restarted a moment ago has no line; without any line there is no log."""
    log = drained(log_of(TEXT, ""))
    assert (log.facts.requests, [each.format for each in log.facts.inputs]) == (4, ["common", "empty"])
    for nothing in ("", "\n\n \n", gzip.compress(b"")):
        with pytest.raises(InvalidCall, match="BytesIO is empty: there is no line to read"):
            log_of(nothing)


def test_ends_of_lines():
    """A carriage return, an empty line, a byte order mark and a missing last end are no part of a line."""
    windows = b"\xef\xbb\xbf" + TEXT.replace("\n", "\r\n\r\n").encode().rstrip()
    assert read(windows) == read(TEXT)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (PACKED[:-9], "its gzip data is damaged or cut off"),
        (PACKED[:5], "its gzip data is damaged or cut off"),
        (PACKED + b"garbage", "its gzip data is damaged or cut off"),
        (b"\x28\xb5\x2f\xfd1234", "is packed by zstd: unpack it, and give its lines by a pipe to -"),
        (b"BZh91AY", "is packed by bzip2"),
        (b"\x7fELF\x02\x01\x01\x00\x00\n\x00\x01", "it is a binary file, and no log of text"),
        (b"hello\nworld\n", "its format is unknown; the nearest is the common log format: write lines such as"),
        (b'{"a": 1}\n', "the nearest is JSON lines: name their fields, as in --fields time=ts,key=client or fields={"),
        (b"a,b,c\n1,2,3\n", "the nearest is CSV or TSV: name their columns, as in --fields time=ts,key=client or"),
        (b"x" * 70_000 + b"\n", "has only lines of more than 65,536 bytes"),
    ],
)
def test_a_file_that_is_no_log_is_told(content, problem):
    """The error tells what the file is, and what to do instead."""
    with pytest.raises(InvalidCall) as told:
        drained(log_of(content))
    assert problem in str(told.value)


def test_a_path_that_cannot_be_read_is_told(tmp_path):
    """A missing file and a folder are told with their names, escaped."""
    with pytest.raises(InvalidCall, match=r"gone\\x1b cannot be read: No such file or directory"):
        Log([tmp_path / "gone\x1b"])
    with pytest.raises(InvalidCall, match="cannot be read: Is a directory"):
        Log([tmp_path])
    strangers: list[Any] = [3, None, io.StringIO(TEXT)]
    for strange in strangers:
        with pytest.raises(InvalidCall, match="a log must be a (path or an open file|file that was opened in binary)"):
            Log([strange])
