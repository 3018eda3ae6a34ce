"""A fast, selective, bounded parser of metrics pages: Prometheus text 0.0.4 and OpenMetrics 1.0. Pure: no IO, no clock, no logging.

Between two scrapes an engine's page hardly changes but for its values, so a `Parser` remembers the page before. Of a page whose lines
begin as that one's did only the numbers are read (`_reread`); any other page is walked line by line (`_walk`), and a series seen before is
looked up by its text. All that is remembered was decided by the very bytes that are compared: memory changes the time, never the result.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import compress, repeat
from types import MappingProxyType
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from collector.errors import SourceError
from collector.exposition_text import LINE, START_OF_LINE, Series, not_a_page, number, numbers, parse_series, shown


class Sample(NamedTuple):
    """One sample; name and labels exactly as the page spells them (`_total` and ':' stay)."""

    name: str
    labels: Mapping[str, str]  # read-only, and shared by the samples of one series on successive pages
    value: float  # in the unit that the name states; NaN where the page says NaN


@dataclass(frozen=True, slots=True)
class Exposition:
    """The samples of a page in the page's order, duplicates kept, and what is wrong with the page: few, plain words."""

    samples: list[Sample]
    problems: tuple[str, ...] = ()


class _Shape(NamedTuple):
    """A page without its values: what the next page must look like for only its numbers to be read."""

    lines: int
    passed: npt.NDArray[np.intp]  # the lines (from 0) that were passed over for their first _HEAD bytes ...
    heads: bytes  # ... and those bytes, line after line
    read: list[bool]  # for each line: whether it was read, because it was not passed over
    prefixes: list[bytes]  # the text of those before the last space
    kept: list[bool]  # whether that is a series asked for
    names: list[str]  # of those series
    labels: list[Mapping[str, str]]


_HEAD: Final = 40  # bytes of a line by which it is passed over: tells what a diagnosis reads from all else on a page of SGLang 0.5.23
_LONGEST_CACHED: Final = 1024  # bytes; the longest series on a page of SGLang 0.5.23 with 8 ranks has 220
_SHOWN_LINES = 8  # lines that are no sample, of one page, that are shown
_IGNORED: Final = Series("", MappingProxyType({}))


class Parser:
    """Parses the successive pages of one engine. Pages of several engines come out right too, only slower. Not thread-safe.

    `families`: the metrics to keep, as SGLang's 0.0.4 pages spell them; None keeps all. A family "f" keeps the samples f, f_sum, f_count
    and f_bucket; asking for "f_sum" alone passes over the buckets. ':' and '_' stand for each other, because the OpenMetrics encoder of
    prometheus_client >= 0.23 writes sglang_x for sglang:x (seen with SGLang 0.5.23). Samples are found with or without a TYPE line,
    wherever they stand. Lines that begin as another family's are passed over unexamined: what is wrong in them is not reported.

    `max_bytes`: a larger page raises. `max_samples`: what follows is not read, and a problem says so. `max_cached`: how many series, and
    how many beginnings of lines, are remembered (at least 1).
    """

    def __init__(
        self,
        families: Iterable[str] | None = None,
        *,
        max_bytes: int = 16 << 20,  # 70 times a page of SGLang 0.5.23 with 8 ranks
        max_samples: int = 100_000,
        max_cached: int = 20_000,
    ) -> None:
        self._wanted: frozenset[bytes] | None = None
        if families is not None:
            names = (family.replace(":", "_").encode() for family in families)
            self._wanted = frozenset(name + suffix for name in names for suffix in (b"", b"_sum", b"_count", b"_bucket"))
        self._max_bytes, self._max_samples, self._max_cached = max_bytes, max_samples, max_cached
        self._series: dict[bytes, Series] = {}  # by the text before a line's last space
        self._passed: set[bytes] = set()  # beginnings of lines to pass over
        self._shape: _Shape | None = None

    def parse(self, body: bytes) -> Exposition:
        """The samples asked for. A line that is no sample costs only itself, and is reported.

        A line that prometheus_client's 0.0.4 parser refuses is never a sample, and a sample is what that parser makes of the line, except
        that a counter without `_total` keeps its name. It lets some malformed lines pass that are no samples here: a bad metric name before
        labels, words between value and timestamp, a comma before the first label.

        Raises SourceError when the body is no metrics page at all: HTML, JSON, compressed, binary, or larger than max_bytes.
        """
        self._refuse(body)
        samples = self._reread(body)
        return self._walk(body) if samples is None else Exposition(samples)

    def _refuse(self, body: bytes) -> None:
        if len(body) > self._max_bytes:
            raise SourceError(
                f"the metrics page has {len(body)} bytes, and the limit is {self._max_bytes}; "
                "look for a label with ever new values on the engine, or raise the limit"
            )
        if (seen := not_a_page(body)) is not None:
            raise SourceError(seen)

    def _reread(self, body: bytes) -> list[Sample] | None:
        """The samples of a page of the remembered shape; None for any other page."""
        shape = self._shape
        if shape is None or not body.endswith(b"\n"):
            return None
        starts = _line_starts(body, shape.lines)
        if starts is None or _heads(body, starts[shape.passed]) != shape.heads:
            return None
        parts = [line.rpartition(b" ") for line in compress(io.BytesIO(body), shape.read)]
        if [part[0] for part in parts] != shape.prefixes:
            return None
        values = numbers(list(compress([part[2] for part in parts], shape.kept)))
        return None if values is None else _samples(shape.names, shape.labels, values)

    def _walk(self, body: bytes) -> Exposition:
        """Any page, line by line. Its shape is remembered when every line is a plain one."""
        rows: list[int] = []  # of each line that is not passed over: its number from 0 ...
        prefixes: list[bytes] = []  # ... its text before the last space ...
        found: list[Series | None] = []  # ... and the series that this is
        raws: list[bytes] = []  # the text after the last space, of those that are not ignored
        notes: list[str] = []
        row = -1
        for row, line in enumerate(io.BytesIO(body)):
            if line[:_HEAD] in self._passed:
                continue
            prefix, _, raw = line.rpartition(b" ")
            series = self._series.get(prefix)
            if series is None:
                if self._passes(line[:_HEAD]):
                    continue
                series = self._learn(prefix)
            if series is not _IGNORED:
                if len(raws) >= self._max_samples:
                    notes.append(f"the page has more than {self._max_samples} samples: line {row + 1} and what follows were not read")
                    break
                raws.append(raw)
            elif row >= self._max_cached:  # the shape of so long a page is not remembered
                continue
            rows.append(row)
            prefixes.append(prefix)
            found.append(series)
        if not body or body.isspace():
            notes.append("the page is empty: check that the engine's metrics are turned on")
        elif not body.endswith(b"\n"):
            notes.append("the page does not end with a newline: it may be cut off, and its last number with it")

        kept = [series is not _IGNORED for series in found]
        known = [series for series in compress(found, kept) if series is not None]
        values = numbers(raws) if len(known) == len(raws) else None
        if values is None:
            samples, bad = self._one_by_one(compress(zip(rows, prefixes, found, strict=True), kept), raws)
            return Exposition(samples, (*bad, *notes))
        names, labels = [series.name for series in known], [series.labels for series in known]
        if row < self._max_cached:
            read = np.zeros(row + 1, np.bool_)
            read[rows] = True
            passed = np.flatnonzero(~read)
            starts = _line_starts(body, row + 1)
            heads = None if starts is None else _heads(body, starts[passed])
            if heads is not None:  # else the page was not read to its end, or has none
                self._shape = _Shape(row + 1, passed, heads, read.tolist(), prefixes, kept, names, labels)
        return Exposition(_samples(names, labels, values), tuple(notes))

    def _one_by_one(self, lines: Iterable[tuple[int, bytes, Series | None]], raws: list[bytes]) -> tuple[list[Sample], list[str]]:
        """The samples of lines of which some are odd or bad, and what to say about the bad ones."""
        samples: list[Sample] = []
        notes: list[str] = []
        bad = 0
        for (row, prefix, known), raw in zip(lines, raws, strict=True):
            series, value = known, None if known is None else number(raw)
            if value is None:
                text = (prefix + b" " + raw).strip()
                series, value = self._odd_line(text)
                if value is None:
                    bad += 1
                    if bad <= _SHOWN_LINES:
                        notes.append(f"line {row + 1} is not a sample: {shown(text)}")
            if value is not None and series is not None and series is not _IGNORED:
                samples.append(Sample(*series, value))
        if bad > _SHOWN_LINES:
            notes.append(f"{bad - _SHOWN_LINES} more lines are not samples")
        return samples, notes

    def _passes(self, head: bytes) -> bool:
        """Whether a line that begins with these _HEAD bytes is a comment or a sample not asked for; if so, they are remembered.

        A shorter line, with its value among these bytes, is not passed over by them but judged by its prefix.
        """
        if len(head) < _HEAD or not self._ignores(head, cut=True):
            return False
        if len(self._passed) >= self._max_cached:
            self._passed.clear()
        self._passed.add(head)
        return True

    def _ignores(self, text: bytes, *, cut: bool) -> bool:
        """Whether a line that begins with `text`, which may be `cut` within the name, is a comment or a sample not asked for."""
        match = START_OF_LINE.match(text)
        assert match is not None  # each of its parts may be absent
        if match[1] is not None:
            return True
        if match[2] is None or self._wanted is None:
            return False
        name = match[2].replace(b":", b"_")
        if match[3] is None and match.end() < len(text):  # no name ends like this
            return False
        if match[3] is None and cut:
            return not any(wanted.startswith(name) for wanted in self._wanted)
        return name not in self._wanted

    def _learn(self, prefix: bytes) -> Series | None:
        """What a line says before its last space: a series, or _IGNORED for a comment or a series not asked for; None if neither."""
        series = _IGNORED if self._ignores(prefix, cut=False) else parse_series(prefix)
        if series is None:
            return None
        if self._wanted is not None and series.name.replace(":", "_").encode() not in self._wanted:
            series = _IGNORED
        if len(prefix) <= _LONGEST_CACHED:
            if len(self._series) >= self._max_cached:
                self._series.clear()
            self._series[prefix] = series
        return series

    def _odd_line(self, text: bytes) -> tuple[Series | None, float | None]:
        """A line with a timestamp or an exemplar, with tabs or without a space; blank, or a comment. No value if it is none of these."""
        if not text or text.startswith(b"#"):
            return _IGNORED, 0.0
        match = LINE.fullmatch(text)
        series = (self._series.get(match[1]) or self._learn(match[1])) if match else None
        if match is None or series is None or any(number(text) is None for text in match.groups()[2:] if text):
            return None, None
        return series, number(match[2])


def _samples(names: list[str], labels: list[Mapping[str, str]], values: list[float]) -> list[Sample]:
    # tuple.__new__ is what Sample(...) comes to, in half the time
    return list(map(tuple.__new__, repeat(Sample), zip(names, labels, values, strict=True)))


def _line_starts(body: bytes, lines: int) -> npt.NDArray[np.intp] | None:
    """Where each line of a body that ends with a newline starts; None if it has not that many lines (a page may be all newlines)."""
    newline = np.frombuffer(body, np.uint8) == ord("\n")
    if np.count_nonzero(newline) != lines:
        return None
    return np.concatenate((np.zeros(1, np.intp), np.flatnonzero(newline)[:-1] + 1))


def _heads(body: bytes, starts: npt.NDArray[np.intp]) -> bytes | None:
    """The first _HEAD bytes at each of the ascending `starts`, joined; None if the body ends before that."""
    if not len(starts):
        return b""
    windows = len(body) - _HEAD + 1
    if starts[-1] >= windows:
        return None
    return np.ndarray(windows, f"V{_HEAD}", body, strides=(1,))[starts].tobytes()
