"""How decode passes ran, from a CUDA graph or eagerly, and how much of it prefill explains. Pure."""

from __future__ import annotations

import numpy as np

from collector import signals
from collector.model import FloatArray, Window, once_a_window
from diagnose import lockstep, sums


@once_a_window
def eager_share(window: Window) -> float | None:
    """Share of decode passes that ran without a graph, the median over ranks; None when passes were not counted."""
    eager, graph = window.mean(signals.EAGER_STEPS), window.mean(signals.GRAPH_STEPS)
    passes = eager + graph
    usable = np.isfinite(passes) & (passes > lockstep.LEAST_RATE)
    return lockstep.median(eager[usable] / passes[usable]) if usable.any() else None


@once_a_window
def prefill_touched(window: Window) -> float | None:
    """The largest share of the group's steps that can have had a prefill on some rank: active steps that were no decode pass, summed.

    An upper bound, as two ranks may prefill in one step. None when steps or passes were not counted.
    """
    rate = lockstep.group_rate(window)
    own = window.mean(signals.STEPS_ACTIVE) - window.mean(signals.EAGER_STEPS) - window.mean(signals.GRAPH_STEPS)
    if rate is None or not np.isfinite(own).any():
        return None
    return min(1.0, sums.total(np.maximum(own, 0.0)) / rate)


@once_a_window
def touched_series(window: Window) -> FloatArray:
    """(T,) share of the group's steps in each interval that a prefill on some rank touches: those in which a rank prefills, and those in
    which it decodes without a graph, as far as prefills are there to take it. 0 where steps or passes were not counted."""
    eager, graph, active = (window.get(name) for name in (signals.EAGER_STEPS, signals.GRAPH_STEPS, signals.STEPS_ACTIVE))
    rate, passes = lockstep.rate_series(window), eager + graph
    stepped = np.isfinite(rate) & (rate > lockstep.LEAST_RATE)
    ran = sums.by_column(passes)  # of all ranks: each one's decode passes share the group's steps
    without = sums.by_column(eager) / np.maximum(ran, lockstep.LEAST_RATE)
    own = np.clip(sums.zeroed(active - passes) / np.where(stepped, rate, 1.0), 0.0, 1.0)
    return np.asarray(np.where(stepped, np.minimum(np.minimum(1.0, without + own.mean(axis=0)), own.sum(axis=0)), 0.0))


@once_a_window
def prefill_expected(window: Window) -> float | None:
    """The share of decode passes that a prefill on some rank touches if in each interval each rank prefills independently of the others;
    None when steps or passes were not counted, or none happened.

    Ranks that prefill together touch fewer. Where the upper bound reaches one, as with long prompts on all ranks, this still tells:
    healthy passes run eagerly at most 0.08 above it in 72 windows of all kinds of traffic (seeds 5 and 11), lost graphs 0.32 or more.
    An interval counts by a rank's decode passes in it, and of the ranks the median is told, as for `eager_share`: a rank that only steps
    along for half of the window shows the other half in both.
    """
    eager, graph, active = (window.get(name) for name in (signals.EAGER_STEPS, signals.GRAPH_STEPS, signals.STEPS_ACTIVE))
    rate, passes = lockstep.rate_series(window), eager + graph
    stepped = np.isfinite(rate) & (rate > lockstep.LEAST_RATE)
    own = np.clip(sums.zeroed(active - passes) / np.where(stepped, rate, 1.0), 0.0, 1.0)
    touched = 1.0 - np.prod(1.0 - own, axis=0)
    ran = np.where(stepped, sums.zeroed(passes), 0.0)
    usable = ran.sum(axis=1) > lockstep.LEAST_RATE
    return lockstep.median((ran @ touched)[usable] / ran.sum(axis=1)[usable]) if usable.any() else None


LOST = 0.3
"""Rise of the eager share that counts as graphs lost: between healthy windows it is at most 0.058 (benchmarks/healthy_spread.py)."""


def lost(window: Window, baseline: Window) -> bool:
    """Whether far more decode passes run eagerly than in the past."""
    now, before = eager_share(window), eager_share(baseline)
    return now is not None and before is not None and now - before >= LOST
