"""Whether vLLM's ranks share a clock, from how their step times move. Pure.

No page says whether the model has experts, which is what decides it. But with experts each forward begins with an all-reduce, so that all
ranks' step times are one figure at every moment; without, each rank's follows its own requests.
"""

from __future__ import annotations

import numpy as np

from collector import signals
from collector.model import Clock, FloatArray, Window

APART = 1.3
"""Times the others' step time from which a rank has a clock of its own. One clock: 1.02 to 1.05 measured with loads of 6 to 1 on vLLM
0.32, at most 1.05 in an interval of the workload; a rank of its own, slowed by 60 ms, stood at 6.4."""

MOST = 0.75
"""Share of the intervals in which that must be so, so that requests which came at different times do not count."""

TOGETHER, ALONE = 0.9, 0.6
"""Correlation of the ranks' changes from interval to interval from which they share a clock, and up to which they do not: 0.96 to 0.998
measured on the workload with experts, -0.29 to 0.48 on its dense ranks."""

MOVES = 0.01
"""Least change of step times from interval to interval (a relative standard deviation) that tells anything: below it rounding decides."""

INTERVALS = 6
"""Fewer changes than this correlate by chance: at 6, two independent ranks pass TOGETHER in one case of a hundred."""


def step_times(window: Window) -> FloatArray:
    """(R, T) seconds per step of each rank by its own requests; NaN where it had none."""
    time, steps = window.get(signals.DECODE_TIME), window.get(signals.DECODE_STEPS)
    out = np.full(time.shape, np.nan)
    np.divide(time, steps, out=out, where=np.isfinite(time) & np.isfinite(steps) & (steps > 0) & (time > 0))
    return out


def tell(window: Window) -> Clock:
    """FORWARD, NONE or UNKNOWN, for a window whose DECODE_TIME and DECODE_STEPS are each rank's own."""
    steps = step_times(window)
    both = np.isfinite(steps).sum(axis=0) >= 2
    if both.sum() < INTERVALS:
        return Clock.UNKNOWN
    levels = np.log(steps[:, both])
    widest = _widest(levels)
    if (widest >= np.log(APART)).mean() >= MOST:
        return Clock.NONE
    found = _correlation(np.diff(levels, axis=1))
    if found is None:
        return Clock.UNKNOWN
    if found >= TOGETHER and (widest < np.log(APART)).mean() >= MOST:
        return Clock.FORWARD
    return Clock.NONE if found <= ALONE else Clock.UNKNOWN


def _widest(levels: FloatArray) -> FloatArray:
    """(T,) log of the longest over the shortest step time of the ranks that were observed."""
    seen = np.isfinite(levels)
    return np.asarray(np.where(seen, levels, -np.inf).max(axis=0) - np.where(seen, levels, np.inf).min(axis=0))


def _correlation(changes: FloatArray) -> float | None:
    """Median over pairs of ranks of the correlation of their changes; None when too few pairs move enough to tell."""
    found = []
    for a in range(len(changes)):
        for b in range(a):
            both = np.isfinite(changes[a]) & np.isfinite(changes[b])
            x, y = changes[a][both], changes[b][both]
            if len(x) >= INTERVALS and min(x.std(), y.std()) >= MOVES:
                found.append(float(np.corrcoef(x, y)[0, 1]))
    return float(np.median(found)) if found else None
