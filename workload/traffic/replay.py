"""Recorded requests: a CSV file with the columns time, input, output and prefix.

    time,input,output,prefix
    0.0,5300,120,system:500/contract:4700
    0.8,90,15,

`time` is in seconds since the start and does not fall; `input` and `output` are tokens. `prefix` names the segments that the prompt
begins with, each with its tokens; it may be empty, and the column may be missing. Segments of the same names, one after the other,
are the same text.
"""

from __future__ import annotations

import csv
import difflib
import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TextIO

from workload.prefix import Segment
from workload.traffic.source import Shape

COLUMNS = ("time", "input", "output", "prefix")

Row = tuple[float, Shape]
"""When, in seconds since the start, and what."""


class ReplayError(ValueError):
    """A file that is not a recording; says file, line, column, and what was found there."""


def load(path: Path, most: int) -> list[Row]:
    """The rows of a file; `most` tokens of input and output are what a rank can hold. Raises ReplayError, for an unreadable file too."""
    try:
        with path.open(encoding="utf-8", newline="") as file:
            return parse(file, str(path), most)
    except (OSError, UnicodeDecodeError) as error:
        raise ReplayError(f"{path}: cannot be read: {error}") from error


def parse(lines: Iterable[str], name: str, most: int) -> list[Row]:
    """The rows of a recording called `name` in errors."""
    reader = csv.DictReader(lines, strict=True)
    try:
        header = reader.fieldnames or ()
        _check_header(header, name)
        rows: list[Row] = []
        for record in reader:
            where = f"{name}, line {reader.line_num}"
            if None in record or None in record.values():
                raise ReplayError(f"{where}: {'more' if None in record else 'fewer'} fields than the {len(header)} of the header")
            rows.append(_row(record, where, most))
            if len(rows) > 1 and rows[-1][0] < rows[-2][0]:
                raise ReplayError(f"{where}, column time: {rows[-1][0]} is before {rows[-2][0]}, the row above; sort the file by time")
    except csv.Error as error:
        raise ReplayError(f"{name}, line {reader.reader.line_num}: not CSV: {error}") from error
    if not rows:
        raise ReplayError(f"{name}: has no rows")
    return rows


def write(rows: Sequence[Row], file: TextIO) -> None:
    """What `parse` gives back as the same rows. `file` is opened with newline=''. Raises ValueError for a segment name with a /."""
    writer = csv.writer(file)
    writer.writerow(COLUMNS)
    for at, shape in rows:
        for segment in shape.prefix:
            if "/" in segment.name:
                raise ValueError(f"segment {segment.name!r}: / stands between segments; rename it")
        writer.writerow((repr(at), shape.prompt, shape.output, "/".join(f"{s.name}:{s.tokens}" for s in shape.prefix)))


def _check_header(header: Sequence[str], name: str) -> None:
    for column in header:
        if column not in COLUMNS:
            near = difflib.get_close_matches(column, COLUMNS, n=1)
            hint = f"did you mean {near[0]}?" if near else f"the columns are {', '.join(COLUMNS)}"
            raise ReplayError(f"{name}, line 1: unknown column {column!r}; {hint}")
    missing = [column for column in COLUMNS if column not in header and column != "prefix"]
    if missing:
        raise ReplayError(f"{name}, line 1: column {missing[0]} is missing; the first line names the columns: {','.join(COLUMNS)}")
    if len(set(header)) < len(header):
        raise ReplayError(f"{name}, line 1: a column is named twice: {','.join(header)}")


def _row(record: dict[str, str], where: str, most: int) -> Row:
    try:
        at = float(record["time"])
    except ValueError:
        at = math.nan
    if not 0 <= at < math.inf:
        raise ReplayError(f"{where}, column time: {record['time']!r} is not a number of seconds from 0 up")
    prefix = _prefix(record.get("prefix", ""), f"{where}, column prefix")
    prompt = _tokens(record["input"], f"{where}, column input")
    if (begins := sum(segment.tokens for segment in prefix)) > prompt:
        raise ReplayError(f"{where}, column prefix: its segments have {begins} tokens, the whole input {prompt}")
    output = _tokens(record["output"], f"{where}, column output")
    if prompt + output > most:
        raise ReplayError(f"{where}, column input: {prompt} + {output} tokens never fit a rank's {most}; leave the row out")
    return at, Shape(prompt, 0, output, prefix)


def _tokens(text: str, where: str) -> int:
    # int() alone would take "1_000" and "+5", which are slips in a recording
    if not (text.isascii() and text.isdigit()) or int(text) < 1:
        raise ReplayError(f"{where}: {text!r} is not a whole number of tokens from 1 up")
    return int(text)


def _prefix(text: str, where: str) -> tuple[Segment, ...]:
    segments = []
    for part in text.split("/") if text else ():
        name, colon, tokens = part.rpartition(":")
        if not colon or not name:
            raise ReplayError(f"{where}: {part!r} is not NAME:TOKENS; segments are joined by /, as in system:500/contract:4700")
        segments.append(Segment(name, _tokens(tokens, where)))
    return tuple(segments)
