"""Adds up what the engine's diaries say into what the pages show: counters at the times of the scrapes, snapshots as they were published.

The rules of when a rank tells what are those of `workload.reporter` and `workload.face.metrics`, applied to whole blocks of loops.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterator
from operator import itemgetter
from typing import Any

import numpy as np

from workload.config import ClusterConfig
from workload.device.experts import SAMPLED_LAYERS
from workload.face import specs
from workload.face.metrics import FLUSH_S
from workload.virtual_time import block
from workload.virtual_time.block import Launched, Stretches
from workload.virtual_time.columns import FIRST_TOKEN, columns, forward, key
from workload.virtual_time.diary import Diary
from workload.virtual_time.hosts import Array
from workload.virtual_time.snapshots import Snapshot, Snapshots

Places = np.ndarray[Any, np.dtype[np.int_]]

_SYNC = np.array(specs.SYNC_WAIT_SECONDS)
_RATIO = np.array(specs.IMBALANCE_RATIOS)
_FIRST = np.array(specs.FIRST_TOKEN_SECONDS)
_TIME = itemgetter(0, 1)
_OF_RANK_0 = "dp_attention_token_imbalance_ratio"  # it alone tells of the imbalance


class Scrapes:
    """The times of one kind of page: every `interval` seconds, never when it is infinite."""

    def __init__(self, interval: float, duration: float) -> None:
        self._interval = interval
        self._duration = duration
        self._given = 0

    def due(self, until: float) -> list[float]:
        """Those before `until`, and before the simulation's end, that were not given yet."""
        if math.isinf(self._interval):
            return []
        last = math.ceil(min(until, self._duration) / self._interval - 1e-9)
        times = [number * self._interval for number in range(self._given, last)]
        self._given = max(self._given, last)
        return times


class Ledger:
    """`loads(at, snapshots)` and `metrics(at, values)` hear of each scrape, in the order of time; `at` in seconds from the start.

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
        self._metrics = metrics
        self._metrics_due = Scrapes(metrics_every, duration)
        self._loads_due = Scrapes(loads_every, duration)
        self._snapshots = Snapshots(n, loads)
        places: dict[str, list[int]] = {}
        for place, column in enumerate(self.columns):
            if column.rank == 0 or column.family.name != _OF_RANK_0:
                places.setdefault(key(column), []).append(place)
        self._places = {name: np.array(found) for name, found in places.items()}
        self._sync_bounds, self._ratio_bounds, self._first_bounds = (
            np.array([at for name, at in self._places.items() if name.startswith(f"{family}_bucket")]).T
            for family in ("dp_attention_sync_wait_seconds", _OF_RANK_0, FIRST_TOKEN.name)
        )
        self._maps = np.array([_map(self._places, layer, n) for layer in SAMPLED_LAYERS])
        self._aligned: dict[tuple[str, ...], tuple[Places, Places]] = {}  # see `_side_by_side`
        self._answered: list[tuple[float, float]] = []  # first tokens that no scrape has seen
        self._last = Launched.nothing(n)
        self._unwritten: Array = np.zeros(1)  # of the counters that are not written in every loop
        self._flushed: float | None = None
        self._others: deque[tuple[float, Callable[[], None]]] = deque()  # what else is to be shown, and when

    def show(self, at: float, page: Callable[[], None]) -> None:
        """Has `page` called between the scrapes before `at` and those after it. No earlier than what was given before."""
        self._others.append((at, page))

    def add(self, diary: Diary, until: float, next_begin: Array) -> None:
        """Takes a block whose last loop ends at `until`; `next_begin`: how much later each rank begins the next one."""
        self._answered += diary.answered
        self._snapshots.begin(diary)
        if diary.base:
            ends = np.array([*diary.base[1:], until])
            both = Launched.of(diary, self._last)
            loads, metrics = self._loads_due.due(until), self._metrics_due.due(until)
            self._in_turn(
                until, loads, self._snapshots.add(diary, ends, both, loads), metrics, self._count(diary, ends, both, next_begin, metrics)
            )
            self._last = both

    def stand_still(self, until: float) -> None:
        """Nothing has happened until then: pages show what they showed."""
        loads, metrics = self._loads_due.due(until), self._metrics_due.due(until)
        self._in_turn(until, loads, self._snapshots.same(loads), metrics, self._same(metrics))

    def _in_turn(self, until: float, loads: list[float], snapshots: Iterator[None], metrics: list[float], counters: Iterator[None]) -> None:
        """Makes the pages of these times in their order, the next one of a kind with each `next`, and lets both do what is left."""
        turns = [(at, 0, snapshots) for at in loads] + [(at, 1, counters) for at in metrics]
        for at, _, pages in sorted(turns, key=_TIME):
            self._show_others(at)
            next(pages)
        for pages in (snapshots, counters):
            for _ in pages:
                raise AssertionError("a page more than there are times")
        self._show_others(until)

    def _show_others(self, before: float) -> None:
        while self._others and self._others[0][0] < before:
            self._others.popleft()[1]()

    def _same(self, scrapes: list[float]) -> Iterator[None]:
        for at in scrapes:
            self._answer(at)
            self._metrics(at, self.values)
            yield

    def _count(self, diary: Diary, ends: Array, both: Launched, next_begin: Array, scrapes: list[float]) -> Iterator[None]:
        """Brings the counters forward, with a stop at each scrape."""
        was = both.results
        ratio = block.imbalance(was.tokens)
        late, late_sources, late_places = self._side_by_side(block.stages(diary, both.at[1:], ends, next_begin))
        now, now_sources, now_places = self._side_by_side(block.observed(was, diary, ratio, self._forward))
        edges = [0, *ends.searchsorted(scrapes, side="right").tolist(), len(ends)]
        whole, whole_places = self._whole(diary, was, ratio, Stretches(edges))
        ticks = self._ticks(ends)
        write_from = 0
        for at, low, high, counted in zip([*scrapes, math.inf], edges, edges[1:], whole, strict=False):
            self.values[whole_places] += counted
            self.values[now_places] += np.add.reduce(now[low:high])[now_sources]
            last = bisect_right(ticks, high - 1)
            write_to = ticks[last - 1] + 1 if last else 0
            if write_to > write_from:
                self.values[late_places] += (self._unwritten + np.add.reduce(late[write_from:write_to]))[late_sources]
                self._unwritten, write_from = np.zeros(1), write_to
            if at < math.inf:
                self._answer(at)
                self._metrics(at, self.values)
                yield
        self._unwritten = self._unwritten + np.add.reduce(late[write_from:])

    def _side_by_side(self, by_name: dict[str, Array]) -> tuple[Array, Places, Places]:
        """Tables by column's name as one, which of its columns to take for each total, and where in `values` that total is.

        A table of one column for all ranks is taken for each of them.
        """
        names = tuple(by_name)
        if names not in self._aligned:
            places, sources, begin = [self._places[name] for name in names], [], 0
            for where, table in zip(places, by_name.values(), strict=True):
                sources.append(np.broadcast_to(np.arange(begin, begin + table.shape[1]), len(where)))
                begin += table.shape[1]
            self._aligned[names] = np.concatenate(sources), np.concatenate(places)
        return np.concatenate([*by_name.values()], axis=1), *self._aligned[names]

    def _whole(self, diary: Diary, was: Launched, ratio: Array, stretches: Stretches) -> tuple[Array, Places]:
        """What is counted in whole numbers, stretches x totals, and where in `values` these totals are. `ratio`: the imbalance."""
        count = len(stretches)
        table, sources, places = self._side_by_side(block.counted(was, diary, stretches))
        stepped = was.stepped
        sync = stretches.histogram(_SYNC.searchsorted(was.sync), stepped, len(_SYNC) + 1)
        uneven = stretches.histogram(_RATIO.searchsorted(ratio)[:, None], stepped, len(_RATIO) + 1)
        tables, where = [table[:, sources], sync, uneven], [places, self._sync_bounds, self._ratio_bounds]
        if diary.dispatched:
            tables.append(self._routed(diary, stretches))
            where.append(self._maps)
        return (
            np.concatenate([found.reshape(count, -1) for found in tables], axis=1),
            np.concatenate([found.ravel() for found in where]),
        )

    def _routed(self, diary: Diary, stretches: Stretches) -> Array:
        """The heat maps of the experts, stretches x layers x places of `_map`."""
        rows, copies = zip(*diary.dispatched, strict=True)
        sent = np.maximum(np.round(np.array(copies)), 0)
        found = np.zeros((len(stretches), *sent.shape[1:]))
        np.add.at(found, stretches.number[[*rows]], sent)
        upwards = found.cumsum(axis=2)
        count = upwards[..., -1:]
        return np.concatenate((upwards, count, count, found @ np.arange(self._ranks)[:, None]), axis=2)

    def _ticks(self, ends: Array) -> list[int]:
        """The loops in which stages and CPU are written."""
        ticks = []
        if self._flushed is None:
            self._flushed = float(ends[0])
        while (row := int(ends.searchsorted(self._flushed + FLUSH_S))) < len(ends):
            ticks.append(row)
            self._flushed = float(ends[row])
        return ticks

    def _answer(self, at: float) -> None:
        """First tokens that clients had got by then."""
        name = FIRST_TOKEN.name
        seconds = np.array([took for told, took in self._answered if told <= at])
        self._answered = [one for one in self._answered if one[0] > at]
        found = np.bincount(_FIRST.searchsorted(seconds), minlength=len(_FIRST) + 1).cumsum()
        self.values[self._first_bounds[0]] += found
        self.values[self._places[f'{name}_count{{is_streaming="true"}}']] += len(seconds)
        self.values[self._places[f'{name}_sum{{is_streaming="true"}}']] += seconds.sum()


def _map(places: dict[str, Places], layer: int, ranks: int) -> Places:
    """Where a layer's heat map goes: its buckets, the one without a bound, the count and the sum."""
    bounds = [*(repr(float(r)) for r in range(ranks)), "+Inf"]
    samples = [f'bucket{{layer="{layer}",le="{bound}"}}' for bound in bounds] + [f'{part}{{layer="{layer}"}}' for part in ("count", "sum")]
    return np.concatenate([places[f"eplb_gpu_physical_count_{sample}"] for sample in samples])
