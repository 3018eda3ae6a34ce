"""Which load snapshots a scrape shows, with what the reporter knows beside the schedulers: decode moments and throughput."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from operator import attrgetter

import msgspec
import numpy as np

from workload.reporter import GAP_LIMIT, LOG_EVERY
from workload.virtual_time.block import Launched, generated
from workload.virtual_time.diary import Diary, Published
from workload.virtual_time.hosts import Array

_AT = attrgetter("at")


class Snapshot(msgspec.Struct, frozen=True, gc=False):
    """A rank's published load, with what the reporter knows beside its scheduler."""

    known: Published
    throughput: float
    moments: tuple[float, ...]  # see `LoadSnapshot.decode_moments`


class Snapshots:
    """`loads(at, snapshots)` hears of each scrape: what each rank had published last, in a list that goes on being written to."""

    def __init__(self, ranks: int, loads: Callable[[float, list[Snapshot]], None]) -> None:
        self._ranks = ranks
        self._loads = loads
        self._shown: list[Snapshot] = []
        self._moments: Array = np.zeros((6, ranks))
        self._decodes = np.zeros(ranks, dtype=int)
        self._generated = np.zeros(ranks, dtype=int)
        self._logged = [(0.0, 0)] * ranks  # each rank's last log: when, and its generated tokens until then
        self._throughput = [0.0] * ranks

    def begin(self, diary: Diary) -> None:
        """Takes what the first block begins with, which stays if no loop ever ends."""
        if not self._shown:
            self._shown = [Snapshot(first, 0.0, (0.0,) * 6) for first in diary.published[: self._ranks]]

    def same(self, scrapes: Sequence[float]) -> Iterator[None]:
        """Shows what was shown before at each of these times, one with each `next`."""
        for at in scrapes:
            self._loads(at, self._shown)
            yield

    def add(self, diary: Diary, ends: Array, both: Launched, scrapes: Sequence[float]) -> Iterator[None]:
        """Takes a block, and shows at each of `scrapes` the last snapshot of every rank, one scrape with each `next`.

        Only what is shown is completed.
        """
        moments = _moments(both) + self._moments[:, :, None]
        self._moments = moments[:, :, -1]
        logs = self._logs(diary, ends, both)
        published, given = diary.published, 0
        shown: list[dict[int, Published]] = []  # what is new at each scrape, and after the last one, by rank
        for at in [*scrapes, math.inf]:
            upto = bisect_right(published, at, lo=given, key=_AT)
            shown.append({known.rank: known for known in published[given:upto]})
            given = upto
        where = [(known.rank, known.row) for fresh in shown for known in fresh.values()]
        sums = iter(moments[:, [rank for rank, _ in where], [row for _, row in where]].T.tolist())
        for number, fresh in enumerate(shown):
            for rank, known in fresh.items():
                changes, values = logs[rank]
                self._shown[rank] = Snapshot(known, values[bisect_right(changes, known.row)], tuple(next(sums)))
            if number < len(scrapes):
                self._loads(scrapes[number], self._shown)
                yield

    def _logs(self, diary: Diary, ends: Array, both: Launched) -> list[tuple[list[int], list[float]]]:
        """Per rank the loops in which its throughput changes, and the values between them: one more than loops."""
        was = both.results
        decode = was.decode
        counts = self._decodes[:, None] + decode.cumsum(axis=1)
        made = self._generated[:, None] + generated(was, diary).cumsum(axis=1)
        self._decodes, self._generated = counts[:, -1], made[:, -1]
        logs: list[tuple[list[int], list[float]]] = [([], [throughput]) for throughput in self._throughput]
        ranks, rows = np.nonzero(decode & (counts % LOG_EVERY == 0))
        for rank, row, end, tokens in zip(ranks.tolist(), rows.tolist(), ends[rows].tolist(), made[ranks, rows].tolist(), strict=True):
            since, before = self._logged[rank]
            self._logged[rank] = end, tokens
            changes, values = logs[rank]
            changes.append(row)
            values.append((tokens - before) / (end - since))
        self._throughput = [values[-1] for _, values in logs]
        return logs


def _moments(both: Launched) -> Array:
    """Running sums over contiguous decode launches: n, b, t, b*b, b*t, g; t in microseconds. Moments x ranks x loops."""
    decode = both.decode
    gaps = np.ascontiguousarray(np.diff(both.at, axis=0).T) * 1e6
    on = decode[:, 1:] & decode[:, :-1] & (gaps < GAP_LIMIT * 1e6)
    b, t = both.tokens[:, 1:] * on, gaps * on
    g = b if both.gains is both.tokens else both.gains[:, 1:] * on
    return np.stack([table.cumsum(axis=1) for table in (on, b, t, b * b, b * t, g)])
