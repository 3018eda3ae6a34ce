"""The last pages of one source of one node, columnar and in bounded memory: per rank when its values were true, and the values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import ceil
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from collector.model import FloatArray
from collector.signals import CATALOGUE, Kind

_Float = TypeVar("_Float", bound=np.floating)

MIN_ADVANCE_S = 0.01
"""A sample less than this after the rank's last one is the same snapshot again: its time is our arrival less its age, and network
delay moves the arrival by milliseconds."""

NOISE = 1e-9
"""Relative fall of a counter that is rounding and not a reset: an engine that adds processes' floats in changing order."""

RECENT = 10
"""Pages on which the newest value of a counter is looked for: an idle engine publishes snapshots less often than we ask."""

_SAME = -1.0  # in `_lag`: on the page, but with a snapshot that we had


def is_counter(signal: str) -> bool:
    """Whether a signal is cumulative. Helper signals, which are not in the catalogue, are."""
    return signal not in CATALOGUE or CATALOGUE[signal].kind is Kind.COUNTER


FIRST_ROWS = 8
"""Pages that a ring holds before it first grows: five minutes of a page a minute."""


class Ring:
    """The pages of the last `depth_s` seconds and one before them, at most one for each second. Memory: 4 bytes a row and rank, and 8 more
    for each counter and 4 for each gauge; of at most twice the rows that are needed. A gauge keeps seven digits, which no level needs
    more than; a counter's differences need all of them."""

    def __init__(self, depth_s: float) -> None:
        self.columns: dict[int, int] = {}  # rank -> column
        self._depth_s = depth_s
        self._most = max(ceil(depth_s) + 1, 2)
        self._rows = min(FIRST_ROWS, self._most)
        self._count = 0  # pages added since the ring last grew, and those held then
        self._arrived: FloatArray = np.full(self._rows, np.nan)
        # seconds from a rank's sample to the arrival; NaN: not on the page
        self._lag: npt.NDArray[np.float32] = np.full((self._rows, 0), np.nan, np.float32)
        self._newest: FloatArray = np.full(0, -np.inf)  # time of each rank's last sample
        self._values: dict[str, npt.NDArray[np.floating]] = {}
        self._raw: dict[str, FloatArray] = {}  # counters: last value as read
        self._carry: dict[str, FloatArray] = {}  # counters: what was counted before resets

    def add(self, arrived: float, times: Mapping[int, float], values: Mapping[str, Mapping[int, float]]) -> tuple[int, ...]:
        """Append one page; the ranks on which a counter fell. A page must arrive after the last one; values need their rank's time."""
        if self._count >= self._rows and arrived - self._arrived[(self._count + 1) % self._rows] < self._depth_s:
            self._grow(2 * self._rows)  # without its oldest page it would be less than `depth_s` deep
        self._admit(times, values)
        row = self._count % self._rows
        self._count += 1
        self._arrived[row] = arrived
        time = np.minimum(self._spread(times), arrived)
        here = np.isfinite(time)
        news = here & (np.nan_to_num(time) >= self._newest + MIN_ADVANCE_S)
        self._newest[news] = time[news]
        self._lag[row] = np.where(news, arrived - time, np.where(here, _SAME, np.nan))
        fallen = np.zeros(len(here), dtype=bool)
        for signal, table in self._values.items():
            seen = self._spread(values.get(signal, {}))
            if signal in self._raw:
                table[row], fell = self._corrected(signal, np.where(news, seen, np.nan))
                fallen |= fell
            else:
                table[row] = np.where(here, seen, np.nan)
        return tuple(rank for rank, k in self.columns.items() if fallen[k])

    def extend(
        self, arrived: FloatArray, ranks: Sequence[int], times: FloatArray, values: Mapping[str, FloatArray]
    ) -> list[tuple[float, int]]:
        """Append n pages, oldest first, with the result of as many `add`; (arrival, rank) where a counter fell. `times` and the values are
        (n, R) in the order of `ranks`; no column for a rank without any time."""
        self._grow(min(self._count, self._rows) + len(arrived))
        seen = [name for name, found in values.items() if np.isfinite(found[np.isfinite(times)]).any()]
        sampled = [bool(np.isfinite(column).any()) for column in times.T]
        self._admit({rank: 0.0 for rank, some in zip(ranks, sampled, strict=True) if some}, seen)
        here = [k for k, some in enumerate(sampled) if some]
        columns = [self.columns[ranks[k]] for k in here]
        rows = (self._count + np.arange(len(arrived))) % self._rows
        self._count += len(arrived)
        self._arrived[rows] = arrived

        def spread(found: FloatArray | None) -> FloatArray:
            out = np.full((len(arrived), len(self.columns)), np.nan)
            if found is not None:
                out[:, columns] = found[:, here]
            return out

        time: FloatArray = np.minimum(spread(times), arrived[:, None])
        news = np.zeros(time.shape, dtype=bool)
        for row in range(len(time)):
            at = time[row]
            news[row] = at >= self._newest + MIN_ADVANCE_S  # NaN is not
            self._newest[news[row]] = at[news[row]]
        present = np.isfinite(time)
        self._lag[rows] = np.where(news, arrived[:, None] - time, np.where(present, _SAME, np.nan))
        fallen = np.zeros(time.shape, dtype=bool)
        for signal, table in self._values.items():
            found = spread(values.get(signal))
            if signal in self._raw:
                table[rows], fell = self._all_corrected(signal, np.where(news, found, np.nan))
                fallen |= fell
            else:
                table[rows] = np.where(present, found, np.nan)
        names = {k: rank for rank, k in self.columns.items()}
        return [(float(arrived[row]), names[int(k)]) for row, k in zip(*np.nonzero(fallen), strict=True)]

    def _grow(self, rows: int) -> None:
        """Room for `rows` pages, or as many as there may be; what is held stays."""
        rows = min(rows, self._most)
        if rows <= self._rows:
            return
        order = self._order()

        def longer(table: npt.NDArray[_Float]) -> npt.NDArray[_Float]:
            more = np.full((rows - len(order), *table.shape[1:]), np.nan, table.dtype)
            return np.concatenate([table[order], more])

        self._arrived, self._lag = longer(self._arrived), longer(self._lag)
        self._values = {signal: longer(table) for signal, table in self._values.items()}
        self._rows, self._count = rows, len(order)

    def _all_corrected(self, signal: str, seen: FloatArray) -> tuple[FloatArray, npt.NDArray[np.bool_]]:
        """`_corrected` of (n, R) values, row after row; at once where no counter falls, as nearly always."""
        raw = self._raw[signal]
        highest = np.fmax.accumulate(np.vstack([raw, seen]), axis=0)
        known = np.isfinite(seen)
        if not (seen < highest[:-1] * (1 - NOISE)).any():
            raw[:] = highest[-1]
            return np.where(known, highest[1:] + self._carry[signal], np.nan), np.zeros(seen.shape, dtype=bool)
        rows = [self._corrected(signal, row) for row in seen]
        return np.stack([values for values, _ in rows]), np.stack([fell for _, fell in rows])

    def _corrected(self, signal: str, seen: FloatArray) -> tuple[FloatArray, npt.NDArray[np.bool_]]:
        """Counter values as if never reset, and where one was: as Prometheus counts, a value after a reset counts from zero."""
        raw, carry = self._raw[signal], self._carry[signal]
        fell = seen < raw * (1 - NOISE)
        carry[fell] += raw[fell]
        held = np.where(fell, seen, np.fmax(seen, raw))
        known = np.isfinite(seen)
        raw[known] = held[known]
        return np.where(known, held + carry, np.nan), fell

    def _admit(self, times: Mapping[int, float], values: Iterable[str]) -> None:
        new = [rank for rank in times if rank not in self.columns]
        if new:
            self.columns.update({rank: len(self.columns) + k for k, rank in enumerate(new)})
            self._lag = np.hstack([self._lag, np.full((self._rows, len(new)), np.nan, np.float32)])
            self._newest = np.append(self._newest, np.full(len(new), -np.inf))
            for signal, table in self._values.items():
                self._values[signal] = np.hstack([table, self._blank(signal, len(new))])
            for signal in self._raw:
                self._raw[signal] = np.append(self._raw[signal], np.full(len(new), np.nan))
                self._carry[signal] = np.append(self._carry[signal], np.zeros(len(new)))
        for signal in values:
            if signal not in self._values:
                self._values[signal] = self._blank(signal, len(self.columns))
                if is_counter(signal):
                    self._raw[signal] = np.full(len(self.columns), np.nan)
                    self._carry[signal] = np.zeros(len(self.columns))

    def _blank(self, signal: str, columns: int) -> npt.NDArray[np.floating]:
        return np.full((self._rows, columns), np.nan, np.float64 if is_counter(signal) else np.float32)

    def _spread(self, found: Mapping[int, float]) -> FloatArray:
        """(R,) values by column; NaN for ranks not named. A rank without a time has no column, and so no value."""
        out = np.full(len(self.columns), np.nan)
        for rank, value in found.items():
            if (k := self.columns.get(rank)) is not None:
                out[k] = value
        return out

    @property
    def signals(self) -> Iterable[str]:
        """Every signal that was ever on a page."""
        return self._values.keys()

    @property
    def interval(self) -> float | None:
        """Median seconds between pages; None before the second."""
        arrived = self.arrived()
        return float(np.median(np.diff(arrived))) if len(arrived) > 1 else None

    def arrived(self) -> FloatArray:
        """(n,) arrival of each page held, oldest first."""
        return self._arrived[self._order()]

    def here(self) -> npt.NDArray[np.bool_]:
        """(n, R) whether a rank was on the page."""
        return ~np.isnan(self._lag[self._order()])

    def times(self) -> FloatArray:
        """(n, R) when a rank's values were true; NaN where the page brought no newer snapshot of it."""
        lag = self._lag[self._order()].astype(np.float64)
        return np.where(lag >= 0, self.arrived()[:, None] - lag, np.nan)

    def values(self, signal: str) -> FloatArray:
        """(n, R) values of a signal, counters corrected for resets; NaN where not on the page."""
        return self._values[signal][self._order()].astype(np.float64)

    def latest(self, signal: str) -> FloatArray:
        """(R,) the newest value of a signal, counters corrected for resets; NaN for a rank that is not on the newest page, or had no new
        snapshot on the newest RECENT pages that it was on."""
        recent = self._values[signal][self._order()[-RECENT:]].astype(np.float64)
        here = ~np.isnan(self._lag[self._order()[-1:]])
        if not len(recent):
            return np.full(len(self.columns), np.nan)
        known = np.isfinite(recent)
        newest = len(recent) - 1 - np.argmax(known[::-1], axis=0)
        return np.where(known.any(axis=0) & here[0], recent[newest, np.arange(recent.shape[1])], np.nan)

    def _order(self) -> npt.NDArray[np.int_]:
        held = min(self._count, self._rows)
        return np.arange(self._count - held, self._count) % self._rows

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        tables = (*self._values.values(), *self._raw.values(), *self._carry.values())
        return self._arrived.nbytes + self._lag.nbytes + self._newest.nbytes + sum(table.nbytes for table in tables)
