"""When it began: the one step in a series that is worth a date, and the part of a past that is fit to compare with. Pure.

A change must pass two tests: it stands out of the scatter around it, which may depend on itself in time, and it moves the level by a tenth
or more. argmax over all splits always finds something; only the second look makes it a fact.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from collector import signals
from collector.model import FloatArray, Window, once_a_window
from diagnose import attribution, lockstep
from diagnose.model import Class, Verdict

SHIFT = 0.10
"""Least change of level, of the larger side: twice the share of step time from which rules blame a cause."""

CLEAR = 5.0
"""Standard deviations of the best split's difference. The best of 300 splits of noise passes 4.3 once in a thousand; the rest is for
scatter that depends on itself by more than its neighbours show. Of 400 series each, 10 to 300 long,
at most 2 % of independent and 5 % of strongly dependent noise (0.6 a step) pass (test_change.py)."""

LEAST = 5
"""Intervals on either side: fewer have no scatter of their own."""

WILD = 4.0
"""Robust standard deviations at which single values are cut off before the search: one pause is no change."""

SAME_LOAD = 1.25
"""Times the group's running requests within which a longer step is no matter of load: as for `whole_group_slow`."""


@dataclass(frozen=True, slots=True)
class Change:
    """The level moved from `before` to `after` between values `at - 1` and `at`."""

    at: int
    before: float
    after: float

    @property
    def shift(self) -> float:
        """Change of level as a share of the larger side; positive when it rose."""
        return (self.after - self.before) / max(abs(self.after), abs(self.before), 1e-30)


def find(series: FloatArray) -> Change | None:
    """The step in (T,) values, NaN where not observed; None when none is both clear and a tenth of the level."""
    places = np.flatnonzero(np.isfinite(series))
    if len(places) < 2 * LEAST:
        return None
    values = series[places]
    split = _best(_tamed(values))
    left, right = values[:split], values[split:]
    found = Change(int(places[split]), lockstep.median(left), lockstep.median(right))
    if abs(found.shift) < SHIFT:
        return None
    rest = np.concatenate([_tamed(left) - found.before, _tamed(right) - found.after])
    error = _deviation(rest) * float(np.sqrt(1.0 / len(left) + 1.0 / len(right)))
    return found if abs(found.after - found.before) > CLEAR * error else None


def _best(values: FloatArray) -> int:
    """The split with the greatest difference of means for its lengths."""
    count = len(values)
    left = np.arange(LEAST, count - LEAST + 1)
    total = np.cumsum(values)
    difference = total[left - 1] / left - (total[-1] - total[left - 1]) / (count - left)
    return int(left[np.argmax(np.abs(difference) * np.sqrt(left * (count - left)))])


def _tamed(values: FloatArray) -> FloatArray:
    """Values with single wild ones drawn in, judged by the differences of neighbours, so that a step is none."""
    if len(values) < 2:
        return values
    usual = lockstep.median(np.abs(np.diff(values))) * 1.4826 / np.sqrt(2.0)
    around = np.lib.stride_tricks.sliding_window_view(np.concatenate([values[:1], values[:1], values, values[-1:], values[-1:]]), 5)
    near = np.sort(around, axis=1)[:, 2]
    return np.clip(values, near - WILD * usual, near + WILD * usual)


def _deviation(rest: FloatArray) -> float:
    """Standard deviation of a mean's terms, raised for dependence in time as an autoregression of the first order has it."""
    spread = float(np.std(rest))
    if spread == 0.0:
        return 0.0
    centred = rest - rest.mean()
    near = float(centred[1:] @ centred[:-1]) / float(centred @ centred)
    # Kendall: the estimate is low by (1 + 3 near) / n; as much again for the scatter of the estimate itself
    near = min(0.95, max(0.0, near + 2.0 * (1.0 + 3.0 * max(near, 0.0)) / len(rest)))
    return spread * float(np.sqrt((1.0 + near) / (1.0 - near)))


def since(window: Window, verdict: Verdict) -> float | None:
    """Unix seconds at which what a verdict blames began inside the window; None when it was there from the start, or nothing is blamed.

    Dated on the blamed quantity of the culprits where there is one (lateness for a host, pairs or prefill for load), else on the step time.
    """
    if verdict.cause is None or verdict.klass in (Class.HEALTHY, Class.OUTSIDE):
        return None
    rows = [window.ranks.index(rank) for rank in verdict.ranks if rank in window.ranks]
    others = [k for k in range(len(window.ranks)) if k not in rows]
    series = [_apart(values, rows, others) for values in _blamed(window, verdict.klass)] if rows and others else []
    for values in (*series, lockstep.cadence_series(window)):
        found = find(values)
        if found is not None and found.shift > 0:
            return float(window.edges[found.at])
    return None


def _blamed(window: Window, klass: Class) -> tuple[FloatArray, ...]:
    if klass is Class.SINGLE_POINT:
        return (-(window.get(signals.SYNC_WAIT) + window.get(signals.RECV_WAIT)),)  # who waits less is later
    if klass is Class.LOAD:
        return attribution.decode_pairs(window), window.get(signals.PREFILL_BUSY)
    return ()


def _apart(values: FloatArray, rows: list[int], others: list[int]) -> FloatArray:
    """(T,) by how much the rows stand above the median of the others."""
    mine = lockstep.nanmedian(values[rows])
    return np.asarray(mine - lockstep.nanmedian(values[others]))


@once_a_window
def calm_part(past: Window) -> Window:
    """A past without the part in which its steps were longer at the same load: a fault in it would hide the same fault now.

    The past itself when no such part is clear, or when the load moved with the step time.
    """
    found = find(lockstep.cadence_series(past))
    if found is None:
        return past
    load = past.get(signals.RUNNING).sum(axis=0)
    sides = lockstep.median(load[: found.at]), lockstep.median(load[found.at :])
    if min(sides) > 0 and max(sides) / min(sides) > SAME_LOAD:
        return past
    return columns(past, 0, found.at) if found.shift > 0 else columns(past, found.at, len(past.edges) - 1)


def columns(window: Window, start: int, stop: int) -> Window:
    """The intervals [start, stop) of a window."""
    values = {name: found[:, start:stop] for name, found in window.values.items()}
    return replace(window, edges=window.edges[start : stop + 1], values=values)
