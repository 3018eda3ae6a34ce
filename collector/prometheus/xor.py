"""Chunks of samples as Prometheus stores them, many at a time. Pure.

A chunk is a count, a first time and value, and then bits: the change of the time's change in 1 to 68 bits, the value's XOR with the one
before in 1 to 77 (tsdb/chunkenc/xor.go of Prometheus, after Facebook's Gorilla). Bits can only be read one after the other, but chunks know
nothing of each other: sample k of all chunks is read at once. .05 us a sample, where JSON takes .3 (benchmarks/prometheus_read.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from collector.model import FloatArray

Ints: TypeAlias = npt.NDArray[np.int64]
Words: TypeAlias = npt.NDArray[np.uint64]

MOST = 2000
"""Samples of one chunk that are believed: Prometheus aims at 120 and cuts at twice that. A count could say 65,535, and memory is taken for
the longest of all chunks that are read together."""

_PAST = 32
"""Bytes after the last chunk that a read may touch: two words and some."""

# by the first four bits: how many say which width the time has, and the width
_MARK: Words = np.array([1] * 8 + [2] * 4 + [3] * 2 + [4] * 2, np.uint64)
_WIDTH: Words = np.array([0] * 8 + [14] * 4 + [17] * 2 + [20, 64], np.uint64)

_1, _2, _3, _7, _13, _63, _64 = (np.uint64(n) for n in (1, 2, 3, 7, 13, 63, 64))


def decode(chunks: Sequence[bytes]) -> tuple[Ints, FloatArray, Ints]:
    """All samples of all chunks, one chunk after the other: unix milliseconds, values, and (N + 1,) where each chunk's begin.

    As in a `matrix.Series`; the mark of a series' end is a NaN. Raises ValueError or IndexError for damaged chunks.
    """
    if not chunks:
        return np.zeros(0, np.int64), np.zeros(0), np.zeros(1, np.int64)
    sizes = np.array([len(chunk) for chunk in chunks])
    if sizes.min() < 2:
        raise ValueError("a chunk without a count")
    raw = np.frombuffer(b"".join(chunks) + bytes(_PAST), np.uint8)
    starts = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    counts = raw[starts].astype(np.int64) << 8 | raw[starts + 1]
    if counts.max() > MOST:
        raise ValueError(f"a chunk of {counts.max()} samples")
    order = np.argsort(-counts, kind="stable")  # those that still have a sample are then always the first ones
    times, bits = _Bits(raw, starts[order], sizes[order]).read(counts[order])
    back = np.argsort(order)
    times, values = times[back], bits[back].view(np.float64)
    there = (np.arange(times.shape[1]) < counts[:, None]) & ~np.isnan(values)
    kept = values[there]
    return times[there], np.where(np.isfinite(kept), kept, np.inf), np.concatenate([[0], np.cumsum(there.sum(axis=1))])


class _Bits:
    """Places in the bits of chunks, which advance together."""

    def __init__(self, raw: npt.NDArray[np.uint8], starts: Ints, sizes: Ints) -> None:
        self._raw = raw
        # a word begins at every byte
        self._words = np.ndarray((len(raw) - 8,), ">u8", raw.data, strides=(1,))
        self._at = (starts.astype(np.uint64) + _2) * np.uint64(8)
        self._ends = (starts + sizes).astype(np.uint64) * np.uint64(8)

    def read(self, counts: Ints) -> tuple[Ints, Words]:
        """(N, K) times and values' bits of chunks whose counts do not rise; rows are filled up to their counts."""
        longest = int(counts[0])
        active = np.searchsorted(-counts, -np.arange(longest), side="left")  # chunks that have a sample k
        times, bits = np.zeros((len(counts), longest), np.int64), np.zeros((len(counts), longest), np.uint64)
        if longest == 0:
            return times, bits
        n = int(active[0])
        coded = self._number(n)
        time = (coded >> _1).astype(np.int64) ^ -(coded & _1).astype(np.int64)  # zigzag
        value = self._peek(n)
        self._at[:n] += _64
        step: Ints = np.zeros(n, np.int64)
        lead, trail = np.zeros(n, np.uint64), np.zeros(n, np.uint64)
        times[:n, 0], bits[:n, 0] = time, value
        for k in range(1, longest):
            n = int(active[k])
            time, value, step, lead, trail = time[:n], value[:n], step[:n], lead[:n], trail[:n]
            step = self._number(n).astype(np.int64) if k == 1 else step + self._change(n)
            time = time + step
            value, lead, trail = self._changed(value, lead, trail)
            times[:n, k], bits[:n, k] = time, value
        if (self._at > self._ends).any():
            raise ValueError("a chunk that ends early")
        return times, bits

    def _peek(self, n: int) -> Words:
        """The next 64 bits of the first n chunks."""
        byte, shift = (self._at[:n] >> _3).astype(np.int64), self._at[:n] & _7
        words: Words = self._words[byte].astype(np.uint64)
        rest: Words = self._raw[byte + 8].astype(np.uint64)
        ahead: Words = np.bitwise_or(words << shift, rest >> (np.uint64(8) - shift))
        return ahead

    def _number(self, n: int) -> Words:
        """A number of 7 bits a byte, the lowest first."""
        out, more = np.zeros(n, np.uint64), np.ones(n, bool)
        for place in range(10):
            byte = self._peek(n) >> np.uint64(56)
            out |= np.where(more, (byte & np.uint64(0x7F)) << np.uint64(7 * place), np.uint64(0))
            self._at[:n] += np.where(more, np.uint64(8), np.uint64(0))
            more &= byte >= np.uint64(0x80)
            if not more.any():
                return out
        raise ValueError("a number of more than ten bytes")

    def _change(self, n: int) -> Ints:
        """How much longer than the last the next step in time is, ms."""
        ahead = self._peek(n)
        first = (ahead >> np.uint64(60)).astype(np.int64)
        if (first < 8).all():  # as nearly always: the scrape came when it was due
            self._at[:n] += _1
            return np.zeros(n, np.int64)
        mark, width = _MARK[first], _WIDTH[first]
        self._at[:n] += mark
        wide = first == 15
        ahead = np.where(wide, self._peek(n), ahead << mark) if wide.any() else ahead << mark
        found = np.where(width > 0, ahead >> (_64 - np.maximum(width, _1)), np.uint64(0)).astype(np.int64)
        half = np.where(wide | (width == 0), np.int64(0), np.int64(1) << np.maximum(width.astype(np.int64) - 1, 0))
        self._at[:n] += width
        return np.where((half > 0) & (found > half), found - 2 * half, found)

    def _changed(self, value: Words, lead: Words, trail: Words) -> tuple[Words, Words, Words]:
        """The next values, and how many zero bits stand before and after what changes in them."""
        n = len(value)
        ahead = self._peek(n)
        differs = ahead >> _63 == _1
        fresh = differs & ((ahead >> np.uint64(62)) & _1 == _1)
        width = (ahead >> np.uint64(51)) & _63
        width = np.where(width == 0, _64, width)
        before = (ahead >> np.uint64(57)) & np.uint64(31)
        if (fresh & (before + width > _64)).any():
            raise ValueError("a value of more than 64 bits")
        lead, trail = np.where(fresh, before, lead), np.where(fresh, _64 - before - width, trail)
        self._at[:n] += np.where(fresh, _13, np.where(differs, _2, _1))
        length = _64 - lead - trail
        payload = (self._peek(n) >> (_64 - length)) << trail
        self._at[:n] += np.where(differs, length, np.uint64(0))
        return np.where(differs, value ^ payload, value), lead, trail
