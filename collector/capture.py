"""A recorded incident in one file: raw pages with their arrival times, so that a replay gives the same windows as the live engine did.

The file is gzip over JSON lines: a header, then one page a line. Every page is flushed, so a recorder that is killed leaves a readable
file. Redaction is on unless it is turned off, see `redact`.
"""

from __future__ import annotations

import base64
import binascii
import os
import zlib
from collections.abc import Generator, Iterator
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self

import msgspec

from collector.errors import CaptureError
from collector.intake import Intake
from collector.model import Page, Problem, Source
from collector.redact import Redactor

FORMAT = "slowrank.capture/"
VERSION = 1

MAX_LINE = 96 << 20
"""Bytes of one line. A page has up to 32 MiB, which JSON's escapes or base64 can make three times as long."""

MAX_TOTAL = 4 << 30
"""Bytes of a whole unpacked capture: about a day of an 8-rank engine. What follows is not read."""

_CHUNK = 1 << 16
_LATEST = 4_102_444_800.0  # the year 2100: a later arrival is damage
_GZIP = 31  # zlib's wbits for a gzip header; no file name goes into it


class _Header(msgspec.Struct):
    format: str
    redacted: bool = True
    created: float = 0.0


class _Line(msgspec.Struct, omit_defaults=True):
    engine: str
    node: str
    source: str
    arrived: float
    took: float = 0.0
    status: int = 0
    content_type: str = ""
    text: str | None = None  # the body where it is UTF-8
    base64: str | None = None  # the body where it is not
    error: str | None = None


class CaptureWriter:
    """Writes a capture page by page. `created`: unix seconds for the header. Raises CaptureError when the file is there or cannot be."""

    def __init__(self, path: str | os.PathLike[str], *, created: float, redacted: bool = True) -> None:
        self.path = Path(path)
        self.pages = 0
        self._redactor = Redactor() if redacted else None
        self._packer = zlib.compressobj(wbits=_GZIP)
        try:
            self._file = self.path.open("xb")
        except FileExistsError:
            raise CaptureError(f"{self.path}: there already; name another file, or remove this one first") from None
        except OSError as error:
            raise CaptureError(f"{self.path}: cannot be written ({error.strerror}); name a file in a folder that can") from None
        self._put(_Header(f"{FORMAT}{VERSION}", redacted, created))

    def write(self, page: Page) -> None:
        """Append one page; on the disk's side of our buffers when this returns. Raises CaptureError when the disk refuses."""
        if self._redactor is not None:
            page = self._redactor.page(page)
        line = _Line(page.engine, page.node, page.source.value, page.arrived, page.took, page.status, page.content_type, error=page.error)
        try:
            line.text = page.body.decode()
        except UnicodeDecodeError:
            line.base64 = base64.b64encode(page.body).decode()
        self._put(line)
        self.pages += 1

    def close(self) -> None:
        """Write the end of the file. A capture without it is read all the same, with a Problem."""
        if not self._file.closed:
            with self._file:
                self._file.write(self._packer.flush())

    def _put(self, line: _Header | _Line) -> None:
        try:
            self._file.write(self._packer.compress(msgspec.json.encode(line) + b"\n") + self._packer.flush(zlib.Z_SYNC_FLUSH))
            self._file.flush()
        except OSError as error:
            raise CaptureError(f"{self.path}: writing failed ({error.strerror}); what was written until now can be read") from None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


def read_capture(path: str | os.PathLike[str], problems: list[Problem] | None = None) -> Iterator[Page]:
    """The pages of a capture in the order of recording.

    A file that ends early, or is damaged from some point on, gives the pages before that point, and a Problem is put into `problems`.
    Raises CaptureError, at the first page asked for, when the file is no capture, of another version, or cannot be opened.
    """
    where = Path(path)
    said: list[Problem] = [] if problems is None else problems
    lines = _lines(where, said)
    try:
        _check_header(where, next(lines, b""))
        for number, line in enumerate(lines, 2):
            page = _page(line)
            if page is None:
                said.append(Problem(str(where), f"line {number} is no recorded page", "the pages before it were read; record again"))
                return
            yield page
    finally:
        lines.close()


def replay(path: str | os.PathLike[str], intake: Intake) -> None:
    """Feed a capture's pages to an intake, and tell it what is wrong with the file. Raises CaptureError as `read_capture`."""
    problems: list[Problem] = []
    for page in read_capture(path, problems):
        intake.feed(page)
    for problem in problems:
        intake.note(problem)


def _check_header(path: Path, line: bytes) -> None:
    then = "give a file that `slowrank record` wrote"
    try:
        header = msgspec.json.decode(line, type=_Header)
    except (msgspec.DecodeError, ValueError, RecursionError):
        raise CaptureError(f"{path}: no capture, its first line is no header; {then}") from None
    if not header.format.startswith(FORMAT):
        raise CaptureError(f"{path}: no capture but {header.format[:60]!r}; {then}")
    if header.format != f"{FORMAT}{VERSION}":
        raise CaptureError(f"{path}: {header.format[:60]!r} is not the version that is read here ({VERSION}); use a newer slowrank")


def _page(line: bytes) -> Page | None:
    """The page of a line; None when it is none."""
    try:
        found = msgspec.json.decode(line, type=_Line)
        source = Source(found.source)
        body = base64.b64decode(found.base64, validate=True) if found.base64 is not None else (found.text or "").encode()
    except (msgspec.DecodeError, ValueError, RecursionError, binascii.Error):
        return None
    if not 0 <= found.arrived < _LATEST:
        return None
    return Page(found.engine, found.node, source, found.arrived, found.took, found.status, found.content_type, body, found.error)


def _lines(path: Path, problems: list[Problem]) -> Generator[bytes]:
    """Unpacked lines, bounded in length and sum; a file that ends early or is damaged ends them with a Problem."""
    try:
        with path.open("rb") as file:
            if file.read(2) != b"\x1f\x8b":
                raise CaptureError(
                    f"{path}: no capture, it is not gzip; give a file that `slowrank record` wrote (gzip it if it was unpacked)"
                )
            file.seek(0)
            yield from _split(_unpack(file, path, problems), path, problems)
    except OSError as error:
        raise CaptureError(f"{path}: cannot be read ({error.strerror}); give a file that `slowrank record` wrote") from None


def _unpack(file: BinaryIO, path: Path, problems: list[Problem]) -> Iterator[bytes]:
    """Unpacked pieces of at most _CHUNK bytes, whatever the file expands to."""
    unpacker = zlib.decompressobj(_GZIP)
    while not unpacker.eof:
        packed = unpacker.unconsumed_tail or file.read(_CHUNK)
        if not packed:
            problems.append(Problem(str(path), "the file ends early", "what was recorded until then was read"))
            return
        try:
            yield unpacker.decompress(packed, _CHUNK)
        except zlib.error as error:
            problems.append(Problem(str(path), f"the file is damaged ({error})", "what stands before the damage was read"))
            return


def _split(pieces: Iterator[bytes], path: Path, problems: list[Problem]) -> Iterator[bytes]:
    line = bytearray()
    total = 0
    for piece in pieces:
        total += len(piece)
        if total > MAX_TOTAL or len(line) + len(piece) > MAX_LINE:
            what = f"more than {MAX_TOTAL} bytes" if total > MAX_TOTAL else f"a line of more than {MAX_LINE} bytes"
            problems.append(Problem(str(path), f"{what}; the rest was not read", "record a shorter time"))
            return
        first, *more = piece.split(b"\n")
        line += first
        for part in more:
            yield bytes(line)
            line = bytearray(part)
