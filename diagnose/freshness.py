"""Which load snapshots are old, and which ranks still step: what a stopped rank and a stopped publisher start from. Pure."""

from __future__ import annotations

import numpy as np

from collector import signals
from collector.model import FloatArray, Window
from diagnose import sums
from diagnose.rules import Threshold

THRESHOLDS = {
    "age": Threshold(
        5.0,
        "s",
        "healthy snapshots are at most 0.6 s old (15 steps of 40 ms); garbage collections of 7 s and more are reported and are stalls too",
    ),
    "stood": Threshold(
        0.5,
        "of the time since the snapshot",
        "a stopped rank counts steps in 0 of that time, a rank with a stopped publisher in 1; what lies between has just resumed",
    ),
}


def last(values: FloatArray) -> FloatArray:
    """(R,) the newest observed value of each row; NaN when there is none."""
    if not values.shape[1]:
        return np.full(len(values), np.nan)
    seen = np.isfinite(values)
    if seen[:, -1].all():  # as nearly always
        return values[:, -1]
    newest = values.shape[1] - 1 - np.argmax(seen[:, ::-1], axis=1)
    return np.where(seen.any(axis=1), values[np.arange(len(values)), newest], np.nan)


def stepping(window: Window, age: FloatArray) -> FloatArray:
    """(R,) share of the intervals since each rank's last snapshot (`age` seconds before the window's end, at least the newest one) in which
    steps of the rank were counted; NaN where steps were not observed.

    The whole time since then counts: an engine that stood and has just resumed has counted a step, and published nothing yet.
    """
    active = window.get(signals.STEPS_ACTIVE)
    if not active.shape[1]:
        return np.full(len(active), np.nan)
    steps = sums.zeroed(active) + sums.zeroed(window.get(signals.STEPS_IDLE))
    since = window.edges[1:][None, :] > window.end - sums.zeroed(age)[:, None]
    since[:, -1] = True
    share = ((steps > 0) & since).sum(axis=1) / since.sum(axis=1)
    return np.where(np.isfinite(active).any(axis=1), share, np.nan)
