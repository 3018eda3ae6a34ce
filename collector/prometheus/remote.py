"""Prometheus' remote read, which hands out chunks as they are stored: requests out, series in. Pure.

Its messages are protobuf (prompb/remote.proto), of which five fields are written and seven read here. A reply is a stream of frames: a
length, a checksum that TCP's makes needless, and a ChunkedReadResponse.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from collector.model import FloatArray
from collector.prometheus import xor
from collector.prometheus.matchers import Matcher
from collector.prometheus.matrix import Series

REQUEST_TYPE = "application/x-protobuf"
REPLY_TYPE = "application/x-streamed-protobuf"
HEADERS = {"Content-Type": REQUEST_TYPE, "Content-Encoding": "snappy", "X-Prometheus-Remote-Read-Version": "0.1.0"}

_TYPES = {"=": 0, "!=": 1, "=~": 2, "!~": 3}
_FLOATS, _HISTOGRAMS = 1, {2, 3}
"""Encodings of chunks: plain samples, and native histograms, of which we read none. Others are of versions to come."""

_LABEL = 1 << 3 | 2
"""How a label begins in a ChunkedSeries."""

AT_ONCE = 8000
"""Chunks decoded together: their state stays in the cache of a core. .09 us a sample with 8,000, .13 with 16,000, .12 with 2,000."""


def request(matchers: Sequence[Matcher], start: float, end: float) -> bytes:
    """The body that asks for all series of the matchers between two unix times."""
    told = b"".join(
        _field(3, _whole(1, _TYPES[one.operator]) + _field(2, one.label.encode()) + _field(3, one.value.encode())) for one in matchers
    )
    query = _whole(1, round(start * 1000)) + _whole(2, round(end * 1000)) + told
    return _snappy(_field(1, query) + _whole(2, 1))  # 1: chunks, streamed


def series(body: bytes, start: float, end: float) -> list[Series]:
    """The series of a reply, cut to the time that was asked for. Raises ValueError or IndexError for anything else."""
    labels: dict[tuple[tuple[str, str], ...], int] = {}
    owners: list[int] = []
    chunks: list[bytes] = []
    known: dict[bytes, tuple[str, str]] = {}
    for at, stop in _frames(body):
        for number, begin, after in _fields(body, at, stop):
            if number == 1:
                own, found = _series(body, begin, after, known)
                owner = labels.setdefault(own, len(labels))
                owners += [owner] * len(found)
                chunks += found
    return _whole_series([dict(one) for one in labels], owners, chunks, start, end)


def _whole_series(labels: list[dict[str, str]], owners: list[int], chunks: list[bytes], start: float, end: float) -> list[Series]:
    times, values, of = [np.zeros(0)], [np.zeros(0)], [np.zeros(0, np.int64)]
    for first in range(0, len(chunks), AT_ONCE):
        ms, found, edges = xor.decode(chunks[first : first + AT_ONCE])
        when = ms / 1000.0
        inside = (when >= start) & (when <= end)  # chunks are handed out whole
        times.append(when[inside])
        values.append(found[inside])
        of.append(np.repeat(owners[first : first + AT_ONCE], np.diff(edges))[inside])
    when, told, whose = np.concatenate(times), np.concatenate(values), np.concatenate(of)
    if (whose[1:] < whose[:-1]).any() or ((whose[1:] == whose[:-1]) & (when[1:] <= when[:-1])).any():
        when, told, whose = _in_order(when, told, whose)
    edges = np.searchsorted(whose, np.arange(len(labels) + 1)).tolist()
    return [Series(one, when[a:b], told[a:b]) for one, a, b in zip(labels, edges, edges[1:], strict=False) if a < b]


def _in_order(when: FloatArray, told: FloatArray, whose: xor.Ints) -> tuple[FloatArray, FloatArray, xor.Ints]:
    """Series whose chunks came apart, or overlap; of two samples of one moment the first is kept."""
    order = np.lexsort((when, whose))
    when, told, whose = when[order], told[order], whose[order]
    fresh = np.concatenate([[True], (whose[1:] > whose[:-1]) | (when[1:] > when[:-1])])
    return when[fresh], told[fresh], whose[fresh]


def _frames(body: bytes) -> Iterator[tuple[int, int]]:
    """Where each message of the stream begins and ends."""
    at = 0
    while at < len(body):
        size, at = _number(body, at)
        at += 4
        if at + size > len(body):
            raise ValueError("the stream ends in a frame")
        yield at, at + size
        at += size


def _series(body: bytes, at: int, stop: int, known: dict[bytes, tuple[str, str]]) -> tuple[tuple[tuple[str, str], ...], list[bytes]]:
    """Labels and chunks of a ChunkedSeries. `known`: labels by their bytes, as most are on thousands of series."""
    labels: list[tuple[str, str]] = []
    while at < stop and body[at] == _LABEL and body[at + 1] < 0x80:  # as nearly all are, and there are a dozen on each series
        after = at + 2 + body[at + 1]
        raw = body[at + 2 : after]
        labels.append(known.get(raw) or known.setdefault(raw, _label(raw)))
        at = after
    chunks: list[bytes] = []
    for number, begin, after in _fields(body, at, stop):
        if number == 1:
            labels.append(_label(body[begin:after]))
        elif number == 2:
            chunks += _chunk(body, begin, after)
    return tuple(labels), chunks


def _chunk(body: bytes, at: int, stop: int) -> list[bytes]:
    """The samples of a Chunk; none of a native histogram. Its first and last time are skipped: the samples say them."""
    encoding = 0
    found: list[bytes] = []
    while at < stop:
        key = body[at]
        if key & 7 == 0:
            value = body[at + 1]  # one byte, of all that is wanted
            at += 2
            while body[at - 1] >= 0x80:
                at += 1
            encoding = value if key >> 3 == 3 else encoding
        elif key & 7 == 2:
            size, at = _number(body, at + 1)
            if at + size > stop:
                raise ValueError("a field that ends after its chunk")
            found = [body[at : at + size]] if key >> 3 == 4 else found
            at += size
        else:
            raise ValueError(f"a field of type {key & 7} in a chunk")
    if encoding == _FLOATS:
        return found
    if encoding not in _HISTOGRAMS:
        raise ValueError(f"a chunk of encoding {encoding}")
    return []


def _label(raw: bytes) -> tuple[str, str]:
    """Name and value of a Label."""
    text = {n: raw[a:b].decode() for n, a, b in _fields(raw, 0, len(raw))}
    return text.get(1, ""), text.get(2, "")


def _fields(body: bytes, at: int, stop: int) -> list[tuple[int, int, int]]:
    """(number, begin, end) of each field of a message; of a whole number its value in place of the begin."""
    found = []
    while at < stop:
        key = body[at]
        size, at = (body[at + 1], at + 2) if body[at + 1] < 0x80 else _number(body, at + 1)  # most numbers have one byte
        if key & 7 == 2:
            if at + size > stop:
                raise ValueError("a field that ends after its message")
            found.append((key >> 3, at, at + size))
            at += size
        elif key & 7 == 0:
            found.append((key >> 3, size, at))
        else:
            raise ValueError(f"a field of type {key & 7}, which no message of remote read has")
    return found


def _number(body: bytes, at: int) -> tuple[int, int]:
    """A number of 7 bits a byte, and where it ends."""
    byte = body[at]
    if byte < 0x80:
        return byte, at + 1
    found, shift = byte & 0x7F, 7
    while byte >= 0x80:
        at += 1
        byte = body[at]
        found |= (byte & 0x7F) << shift
        shift += 7
    return found, at + 1


def _whole(number: int, value: int) -> bytes:
    return _varint(number << 3) + _varint(value)


def _field(number: int, value: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(value)) + value


def _varint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _snappy(text: bytes) -> bytes:
    """A snappy block that holds the text as it is: packing a request of a few kilobytes saves nothing."""
    out = bytearray(_varint(len(text)))
    for at in range(0, len(text), 1 << 16):
        part = text[at : at + (1 << 16)]
        out += bytes([61 << 2]) + (len(part) - 1).to_bytes(2, "little") + part  # a literal whose length has two bytes
    return bytes(out)
