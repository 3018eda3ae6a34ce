"""What a step takes at the load it has, read from an engine's own past: the time beyond that is no load's doing. Pure.

The device's time per second is what its steps cost, N of them, of which some are touched by a prompt anywhere in the group, with so many
tokens and attention pairs in them:

    F  =  c0 N  +  c1 N touched  +  c2 tokens  +  c3 pairs  +  s N max_r P_r  +  d N (in the window alone)

One fit over the intervals of the past and of the window: what varies within either tells what load costs, and d is what a step takes more
than the past at the same load. Where load hardly varied, its price is open between nothing and a good part of the step, and the
error of d says so.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from collector import signals
from collector.model import FloatArray, Window, once_a_window
from diagnose import attribution, graphs, lockstep, sums

FEWEST = 4
"""Intervals of the past, and 2 of the window, below which there is no scatter to judge a difference by."""

SCATTER = 0.02
"""Least scatter of an interval's step time about the fit, of its mean: healthy chat leaves 0.004 to 0.01, but five intervals can agree by
chance, and a fit that seems exact would call any difference clear."""

PART = 0.5
"""Share of the step time that one kind of load may take before the data say otherwise: prompts in every step take about a half (rag)."""

ERRORS = 2.0
"""Standard errors on either side of the estimate that its range holds: 95 % if errors are normal."""


@dataclass(frozen=True, slots=True)
class Beyond:
    """Seconds of a step that load does not explain, as a share of the window's mean step, with its standard error; and what the window's
    load takes more than the past's, by the same fit."""

    share: float
    error: float
    by_load: float
    timed: bool  # by the device's own timer: host waits are no part of it


@dataclass(frozen=True, slots=True)
class _Panel:
    """(K, T) rates per second: steps, steps that a prompt touches, tokens, pairs; `busy` seconds per second; `lead` pairs that the busiest
    ranks read. `loads` are those of the K rows that were observed."""

    loads: FloatArray
    mean: FloatArray  # (K,) of `loads`
    busy: FloatArray
    lead: FloatArray
    timed: bool  # by the device's own timer: host waits are no part of it


@once_a_window
def _panel(window: Window) -> _Panel | None:
    if not window.has(signals.STEPS_ACTIVE, signals.STEPS_IDLE, signals.ATTENTION_TOKENS):
        return None
    rate = lockstep.rate_series(window)
    timed = window.has(signals.FORWARD_TIME)
    held = sums.zeroed(window.get(signals.RUNNING)) + sums.zeroed(window.get(signals.WAITING))
    busy: FloatArray = (
        lockstep.nanmedian(window.get(signals.FORWARD_TIME)) if timed else np.asarray((held > 0).any(axis=0), dtype=np.float64)
    )
    tokens = sums.by_column(window.get(signals.ATTENTION_TOKENS))
    pairs = sums.by_column(window.get(signals.ATTENTION_PAIRS))
    lead = np.fmax.reduce(attribution.decode_pairs(window), axis=0) * rate
    rows = np.vstack([rate, graphs.touched_series(window) * rate, tokens, pairs])
    usable = np.isfinite(busy) & np.isfinite(rate) & (rate > lockstep.LEAST_RATE) & (busy > 0)
    loads = sums.zeroed(rows[:, usable])
    return _Panel(loads, np.add.reduce(loads, axis=1) / max(1, loads.shape[1]), busy[usable], sums.zeroed(lead[usable]), timed)


def beyond(window: Window, past: Window, pair: float) -> Beyond | None:
    """The step time of a window beyond what its load takes by the past, or None where steps, tokens or enough intervals are missing.

    `pair`: seconds per attention pair of the busiest rank.
    """
    now, before = _panel(window), _panel(past)
    if now is None or before is None or now.timed is not before.timed or before.busy.size < FEWEST or now.busy.size < 2:
        return None
    first, count = before.busy.size, before.busy.size + now.busy.size
    time = np.concatenate([before.busy - pair * before.lead, now.busy - pair * now.lead])
    mean = float(np.add.reduce(time)) / count
    if mean <= 0:
        return None
    then, means = before.mean, now.mean
    scale = (then * first + means * (count - first)) / count
    seen = scale > 1e-12
    used = scale[seen]
    columns = np.zeros((count, len(used) + 1))
    columns[:first, :-1], columns[first:, :-1] = (before.loads[seen] / used[:, None]).T, (now.loads[seen] / used[:, None]).T
    columns[first:, -1] = now.loads[0] / max(float(means[0]), 1e-12)
    fitted, error = _fit(columns, time / mean)
    total = float(np.add.reduce(now.busy)) / now.busy.size
    grown = means[seen] / means[0] - then[seen] / then[0]
    by_load = float((fitted[:-1] * mean / used * grown)[1:].sum()) * float(means[0]) / total
    return Beyond(float(fitted[-1]) * mean / total, error * mean / total, by_load, now.timed)


def _fit(columns: FloatArray, time: FloatArray) -> tuple[FloatArray, float]:
    """Coefficients by least squares, all but the first and last held towards 0 by PART and not below it; the last one's standard error."""
    count, width = columns.shape
    held = np.zeros(width)
    held[1:-1] = 1.0 / PART**2
    square, right = columns.T @ columns, columns.T @ time
    spread = SCATTER
    for _ in range(2):  # the second time with the scatter that the first leaves
        firm = square + np.diag(held * spread**2 + 1e-9)
        free = np.arange(width)
        while True:
            inverse = np.linalg.inv(firm[free[:, None], free])
            fitted = np.zeros(width)
            fitted[free] = inverse @ right[free]
            if not (below := (fitted < 0) & (held > 0)).any():
                break
            free = free[free != np.argmin(np.where(below, fitted, 0.0))]
        rest = time - columns @ fitted
        left = max(SCATTER, float(np.sqrt(rest @ rest / max(1, count - len(free)))))
        if left == spread:  # then a second time would find the same
            break
        spread = left
    return fitted, spread * float(np.sqrt(inverse[-1, -1]))
