"""The files of a log as pieces of whole lines: read once, counted and hashed, compressed or not, in bounded memory."""

from __future__ import annotations

import gzip
import hashlib
import stat
import sys
import zlib
from collections.abc import Generator, Iterator
from itertools import chain, islice
from pathlib import Path
from typing import BinaryIO, Final, cast

from headgate.errors import InvalidCall
from headgate.wording import printable

PIECE: Final = 65_536
"""Bytes that are read at once, and the longest line that is read: a longer one reaches over a whole piece."""
HEAD: Final = 4
"""Pieces in which the format is looked for."""
MARK: Final = b"\xef\xbb\xbf"
"""The byte order mark, with which some programs begin a file."""
LONGEST_NAME: Final = 400
GZIP: Final = b"\x1f\x8b"
PACKED: Final = {b"\x28\xb5\x2f\xfd": "zstd", b"BZh": "bzip2", b"\xfd7zXZ\x00": "xz", b"PK\x03\x04": "zip"}


class Tap:
    """A file whose bytes are counted and hashed while they are read."""

    def __init__(self, file: BinaryIO) -> None:
        self._file, self._ahead = file, b""
        self._hash = hashlib.sha256()
        self.count = 0

    def start(self) -> bytes:
        """Return the first bytes, which are then read again."""
        self._ahead = self.read(PIECE)
        return self._ahead[:8]

    def read(self, size: int = -1) -> bytes:
        """Read as a file does."""
        if self._ahead:
            size = len(self._ahead) if size < 0 else size
            taken, self._ahead = self._ahead[:size], self._ahead[size:]
            return taken
        data = self._file.read(size)
        if not isinstance(data, bytes):
            raise InvalidCall("a log must be a file that was opened in binary mode, and that blocks")
        self.count += len(data)
        self._hash.update(data)
        return data

    @property
    def sha256(self) -> str:
        """The hash of what was read."""
        return self._hash.hexdigest()


class Source:
    """One file of a log: a path, or an open file, which is read but not closed."""

    def __init__(self, file: str | Path | BinaryIO) -> None:
        if isinstance(file, str) and file == "-":
            file = sys.stdin.buffer
        if not isinstance(file, str | Path) and not hasattr(file, "read"):
            raise InvalidCall(f"a log must be a path or an open file; got a {type(file).__name__}")
        self._path = Path(file) if isinstance(file, str | Path) else None
        self._stream = None if isinstance(file, str | Path) else file
        given = str(file if self._path else getattr(file, "name", "") or type(file).__name__)
        self.name = printable(given, LONGEST_NAME)
        self.count, self.sha256 = 0, ""
        self._pieces: Iterator[bytes] | None = None

    def head(self) -> list[bytes]:
        """Return the first pieces, which `pieces` gives again. A plain file is closed until then: there may be many."""
        pieces = self._read()
        head = list(islice(pieces, HEAD))
        if self._path is None or not stat.S_ISREG(self._path.stat().st_mode):
            self._pieces = chain(head, pieces)
        else:
            pieces.close()
            self.count, self.sha256 = 0, ""
        return head

    def pieces(self) -> Iterator[bytes]:
        """Yield whole lines, many at once, each with its end. A piece without an end is of a line too long."""
        return self._pieces or self._read()

    def _read(self) -> Generator[bytes]:
        try:
            if self._path is None:
                yield from self._pieces_of(cast("BinaryIO", self._stream))
            else:
                with self._path.open("rb") as file:
                    yield from self._pieces_of(file)
        except (OSError, EOFError, zlib.error) as reason:
            problem = getattr(reason, "strerror", None) or "its gzip data is damaged or cut off"
            raise InvalidCall(f"{self.name} cannot be read: {problem}") from None

    def _pieces_of(self, file: BinaryIO) -> Iterator[bytes]:
        tap = Tap(file)
        start = tap.start()
        for magic, packer in PACKED.items():
            if start.startswith(magic):
                raise InvalidCall(f"{self.name} is packed by {packer}: unpack it, and give its lines by a pipe to -")
        plain = gzip.GzipFile(fileobj=cast("BinaryIO", tap)) if start.startswith(GZIP) else tap
        for piece in whole_lines(cast("BinaryIO", plain)):
            self.count = tap.count
            yield piece
        self.count, self.sha256 = tap.count, tap.sha256


def whole_lines(file: BinaryIO) -> Iterator[bytes]:
    """Cut what a file has into pieces of whole lines; of too long a line, only a piece of its beginning is given."""
    rest, first = b"", True
    while data := file.read(PIECE):
        if first:
            data, first = data.removeprefix(MARK), False
        end = data.find(b"\n")
        if len(rest) + (len(data) if end < 0 else end) > PIECE:
            yield rest[:PIECE]
            data = _after_line(file, data)
            rest = b""
            end = data.find(b"\n")
        if end < 0:
            rest += data
            continue
        end = data.rfind(b"\n") + 1
        yield rest + data[:end]
        rest = data[end:]
    if rest:
        yield rest + b"\n"


def _after_line(file: BinaryIO, data: bytes) -> bytes:
    """Read on until a line ends, and return what follows it."""
    while data:
        _, end, after = data.partition(b"\n")
        if end:
            return after
        data = file.read(PIECE)
    return b""
