"""Adds up what the engine's diaries say into what the pages show: counters at the times of the scrapes, snapshots as they were published.

The rules of when a rank tells what are those of `workload.reporter` and `workload.face.metrics`, applied to whole blocks of loops.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np

from workload.config import ClusterConfig
from workload.device.experts import SAMPLED_LAYERS
from workload.face import specs
from workload.face.metrics import FLUSH_S
from workload.reporter import GAP_LIMIT, LOG_EVERY
from workload.virtual_time import block
from workload.virtual_time.block import Launched, Mask
from workload.virtual_time.columns import FIRST_TOKEN, columns, forward, key
from workload.virtual_time.diary import Diary, Published
from workload.virtual_time.hosts import Array

Places = np.ndarray[Any, np.dtype[np.int_]]

_SYNC = np.array(specs.SYNC_WAIT_SECONDS)
_RATIO = np.array(specs.IMBALANCE_RATIOS)
_FIRST = np.array(specs.FIRST_TOKEN_SECONDS)


class Snapshot(msgspec.Struct, frozen=True, gc=False):
    """A rank's published load, with what the reporter knows beside its scheduler."""

    known: Published
    throughput: float
    moments: tuple[float, ...]  # see `LoadSnapshot.decode_moments`


class Scrapes:
    """The times of one kind of page: every `interval` seconds, never when it is infinite."""

    def __init__(self, interval: float) -> None:
        self._interval = interval
        self._given = 0

    def due(self, until: float) -> list[float]:
        """Those before `until` that were not given yet."""
        if math.isinf(self._interval):
            return []
        last = math.ceil(until / self._interval - 1e-9)
        times = [number * self._interval for number in range(self._given, last)]
        self._given = max(self._given, last)
        return times


class Ledger:
    """`loads(at, snapshots)` and `metrics(at, values)` hear of each scrape, each in the order of time; `at` in seconds from the start.

    `snapshots` is one per rank; `values` one number per column of `columns`. Both go on being written to: read them, do not keep them.
    """

    def __init__(
        self,
        config: ClusterConfig,
        loads: Callable[[float, list[Snapshot]], None],
        metrics: Callable[[float, Array], None],
        *,
        loads_every: float,
        metrics_every: float,
        duration: float,
    ) -> None:
        self.columns = columns(config)
        self.values: Array = np.zeros(len(self.columns))
        self._ranks = n = config.ranks
        self._forward = forward(config)
        self._loads, self._metrics = loads, metrics
        self._loads_due, self._metrics_due = Scrapes(loads_every), Scrapes(metrics_every)
        self._duration = duration
        places: dict[str, list[int]] = {}
        for place, column in enumerate(self.columns):
            places.setdefault(key(column), []).append(place)
        self._places = {name: np.array(found) for name, found in places.items()}
        self._bounds = [
            np.array([at for name, at in self._places.items() if name.startswith(f"{family}_bucket")]) for family in _HISTOGRAMS
        ]
        self._maps = np.array([_map(self._places, layer, n) for layer in SAMPLED_LAYERS])
        bounds = [found for name, found in self._places.items() if name.startswith(f"{FIRST_TOKEN.name}_bucket")]
        self._first_bounds = np.concatenate(bounds)
        self._answered: list[tuple[float, float]] = []  # first tokens that no scrape has seen
        self._last = Launched.nothing(n)
        self._unwritten: Array = np.zeros(0)  # of the counters that are not written in every loop
        self._flushed: float | None = None
        self._moments: Array = np.zeros((6, n))
        self._decodes = np.zeros(n, dtype=int)
        self._logged = [(0.0, 0.0)] * n  # each rank's last log: when, and its generated tokens until then
        self._generated = [0.0] * n
        self._throughput = [0.0] * n
        self._snapshots: list[Snapshot] = []

    def add(self, diary: Diary, until: float, next_begin: Array) -> None:
        """Takes a block whose last loop ends at `until`; `next_begin`: how much later each rank begins the next one."""
        self._answered += diary.answered
        if not self._snapshots:  # those of the start, which stay if no loop ever ends
            self._snapshots = [
                Snapshot(first, 0.0, tuple(self._moments[:, first.rank].tolist())) for first in diary.published[: self._ranks]
            ]
        if diary.base:
            ends = np.array([*diary.base[1:], until])
            new = Launched.of(diary)
            both = new.after(self._last)
            book = block.booked(both, diary, self._forward)
            self._count(diary, until, ends, both, book, next_begin)
            self._publish(diary, until, ends, both, book)
            self._last = Launched(*(getattr(new, name)[-1:] for name in new.__slots__))

    def stand_still(self, until: float) -> None:
        """Nothing has happened until then: pages show what they showed."""
        for at in self._loads_due.due(min(until, self._duration)):
            self._loads(at, self._snapshots)
        for at in self._metrics_due.due(min(until, self._duration)):
            self._answer(at)
            self._metrics(at, self.values)

    def _count(self, diary: Diary, until: float, ends: Array, both: Launched, book: dict[str, Array], next_begin: Array) -> None:
        """Brings the counters forward, with a stop at each scrape."""
        stages, cpu, idle = block.stages(diary, ends, next_begin)
        spent = {f'scheduler_stage_seconds_total{{category="{stage}",forward_overlap="none"}}': took for stage, took in stages.items()}
        late, late_places = self._side_by_side({**spent, "scheduler_process_cpu_seconds_total": cpu})
        now, now_places = self._side_by_side({**book, **block.observed(both), "scheduler_idle_seconds_total": idle})
        unwritten = self._unwritten if len(self._unwritten) else np.zeros(len(late_places))
        sync = np.searchsorted(_SYNC, both.sync[:-1])
        stepped = ~np.isnan(both.end[:-1])
        ticks = self._ticks(ends)
        low = write_from = 0
        scrapes = self._metrics_due.due(min(until, self._duration))
        for at in [*scrapes, math.inf]:
            high = int(np.searchsorted(ends, at, side="right"))
            rows = slice(low, high)
            self.values[now_places] += now[rows].sum(axis=0)
            self._observe(both, rows, sync, stepped)
            self._route(diary, rows)
            last = bisect_right(ticks, high - 1)
            write_to = ticks[last - 1] + 1 if last else 0
            if write_to > write_from:
                self.values[late_places] += unwritten + late[write_from:write_to].sum(axis=0)
                unwritten, write_from = np.zeros(len(late_places)), write_to
            low = high
            if at < math.inf:
                self._answer(at)
                self._metrics(at, self.values)
        self._unwritten = unwritten + late[write_from:].sum(axis=0)

    def _side_by_side(self, by_name: dict[str, Array]) -> tuple[Array, Places]:
        """Counters by loop, as one array, and where in `values` each of its columns goes."""
        return np.concatenate([*by_name.values()], axis=1, dtype=float), np.concatenate([self._places[name] for name in by_name])

    def _ticks(self, ends: Array) -> list[int]:
        """The loops in which stages and CPU are written."""
        ticks = []
        if self._flushed is None:
            self._flushed = float(ends[0])
        while (row := int(np.searchsorted(ends, self._flushed + FLUSH_S))) < len(ends):
            ticks.append(row)
            self._flushed = float(ends[row])
        return ticks

    def _observe(self, both: Launched, rows: slice, sync: Places, stepped: Mask) -> None:
        """Histograms of the steps that these loops book."""
        on = stepped[rows]
        if not on.any():
            return
        width = len(_SYNC) + 1
        found = np.bincount((sync[rows][on] + np.arange(self._ranks) * width).ravel(), minlength=self._ranks * width)
        self.values[self._bounds[0]] += found.reshape(self._ranks, width).cumsum(axis=1).T
        ratio = block.imbalance(both.tokens[:-1][rows][on])
        self.values[self._bounds[1][:, 0]] += np.bincount(np.searchsorted(_RATIO, ratio), minlength=len(_RATIO) + 1).cumsum()

    def _answer(self, at: float) -> None:
        """First tokens that clients had got by then."""
        name = FIRST_TOKEN.name
        seconds = np.array([took for told, took in self._answered if told <= at])
        self._answered = [one for one in self._answered if one[0] > at]
        found = np.bincount(np.searchsorted(_FIRST, seconds), minlength=len(_FIRST) + 1).cumsum()
        self.values[self._first_bounds] += found
        self.values[self._places[f'{name}_count{{is_streaming="true"}}']] += len(seconds)
        self.values[self._places[f'{name}_sum{{is_streaming="true"}}']] += seconds.sum()

    def _route(self, diary: Diary, rows: slice) -> None:
        """The heat maps of the experts that were sent in these loops."""
        found = [copies for row, copies in diary.dispatched if rows.start <= row < rows.stop]
        if found:
            sent = np.maximum(np.round(np.array(found)), 0).sum(axis=0)
            upwards = sent.cumsum(axis=1)
            count = upwards[:, -1:]
            self.values[self._maps] += np.concatenate((upwards, count, count, sent @ np.arange(self._ranks)[:, None]), axis=1)

    def _publish(self, diary: Diary, until: float, ends: Array, both: Launched, book: dict[str, Array]) -> None:
        """Completes the snapshots, and shows at each scrape the last one of every rank."""
        moments = self._moments[:, None, :] + _moments(both)
        self._moments = moments[:, -1, :]
        logs = self._logs(ends, book)

        def complete(known: Published) -> Snapshot:
            rows, values = logs[known.rank]
            return Snapshot(known, values[bisect_right(rows, known.row)], tuple(moments[:, known.row, known.rank].tolist()))

        published = diary.published
        shown = self._snapshots
        given = 0
        for at in [*self._loads_due.due(min(until, self._duration)), math.inf]:
            fresh: dict[int, Published] = {}  # only what is shown is completed: about one snapshot in three
            while given < len(published) and published[given].at <= at:
                fresh[published[given].rank] = published[given]
                given += 1
            for rank, known in fresh.items():
                shown[rank] = complete(known)
            if at < math.inf:
                self._loads(at, shown)
        self._snapshots = shown

    def _logs(self, ends: Array, book: dict[str, Array]) -> list[tuple[list[int], list[float]]]:
        """Per rank the loops in which its throughput changes, and the values between them: one more than loops."""
        decoded = book[_DECODED].astype(int) + book[_DECODED_EAGER].astype(int)
        counts = self._decodes + decoded.cumsum(axis=0)
        made = self._generated + book[_GENERATED].cumsum(axis=0)
        logs = []
        for r in range(self._ranks):
            rows = np.flatnonzero((decoded[:, r] > 0) & (counts[:, r] % LOG_EVERY == 0)).tolist()
            values = [self._throughput[r]]
            for row in rows:
                since, before = self._logged[r]
                values.append(float(made[row, r] - before) / (float(ends[row]) - since))
                self._logged[r] = float(ends[row]), float(made[row, r])
            self._throughput[r] = values[-1]
            logs.append((rows, values))
        self._decodes, self._generated = counts[-1], made[-1]
        return logs


_HISTOGRAMS = ("dp_attention_sync_wait_seconds", "dp_attention_token_imbalance_ratio")
_DECODED = 'cuda_graph_passes_total{mode="decode_cuda_graph"}'
_DECODED_EAGER = 'cuda_graph_passes_total{mode="decode_none"}'
_GENERATED = 'realtime_tokens_total{mode="decode"}'


def _map(places: dict[str, Places], layer: int, ranks: int) -> Places:
    """Where a layer's heat map goes: its buckets, the one without a bound, the count and the sum."""
    bounds = [*(repr(float(r)) for r in range(ranks)), "+Inf"]
    samples = [f'bucket{{layer="{layer}",le="{bound}"}}' for bound in bounds] + [f'{part}{{layer="{layer}"}}' for part in ("count", "sum")]
    return np.concatenate([places[f"eplb_gpu_physical_count_{sample}"] for sample in samples])


def _moments(both: Launched) -> Array:
    """Running sums over contiguous decode launches: n, b, t, b*b, b*t, g; t in microseconds. Moments x loops x ranks."""
    decode = both.decode
    t = np.diff(both.at, axis=0) * 1e6
    on = decode[1:] & decode[:-1] & (t < GAP_LIMIT * 1e6)
    b, t, g = both.tokens[1:] * on, t * on, both.gains[1:] * on
    return np.stack((on.astype(float), b, t, b * b, b * t, g)).cumsum(axis=1)
