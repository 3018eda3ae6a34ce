"""Samples at their own times onto one grid of intervals: where the grid lies, counters as rates, gauges as means. Pure."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from collector.model import FloatArray

GAP = 3.0
"""Intervals without a sample after which a value is unknown instead of bridged: two lost scrapes are an accident, three are an outage."""

MIN_STEP_S = 1.0
"""Shortest default interval: SGLang flushes stage seconds, and routers refresh, no faster."""

MAX_INTERVALS = 10_000
"""Columns of a grid; a longer span gets longer intervals."""

SLACK_S = 0.001
"""How far beyond its first or last sample a counter may be read: the rounding of a sample's time, not an extrapolation."""


def lay(start: float, end: float, reach: float, spans: Sequence[tuple[float, float]], step: float | None, default: float) -> FloatArray:
    """Edges of the intervals inside [start, end] that the samples cover; one edge when they cover nothing.

    `spans` are (first, last) sample times of every series. A series that begins up to `reach` seconds after the first one, or ends up to
    `reach` before the last one, trims the grid, so that the outer intervals hold all series; one that is missing for longer does not, it
    is NaN there. A given `step` is kept and the rest is cut off at the old end; without one the span is divided evenly by about `default`.
    """
    start = max(start, min(first for first, _ in spans))
    end = min(end, max(last for _, last in spans))
    start = max([start, *(first for first, _ in spans if first <= start + reach)])
    end = min([end, *(last for _, last in spans if last >= end - reach)])
    span = end - start
    wanted = max(default if step is None else step, span / MAX_INTERVALS)
    if step is None:
        count = max(round(span / wanted), 1) if span >= wanted / 2 else 0
        return np.linspace(start, end, count + 1) if count else np.array([end])
    count = max(int(span / wanted + 1e-9), 0)
    return end - wanted * np.arange(count, -1, -1.0)


def rates(times: FloatArray, cumulative: FloatArray, edges: FloatArray, interval: float) -> FloatArray:
    """(S, R, T) increase per second between edges of S counters, from (S, n, R) reset-corrected values at (n, R) sample times.

    Linear between samples. NaN where an edge lies outside a rank's samples or inside a gap of more than GAP intervals, of `interval`
    seconds or of the rank's own median if that is longer: a rank publishes when it has something to say, not when it is asked.
    """
    signals, _, ranks = cumulative.shape
    out = np.full((signals, ranks, len(edges)), np.nan)
    for k in range(ranks):
        sampled = np.isfinite(times[:, k])
        when, values = times[sampled, k], cumulative[:, sampled, k]
        seen = np.isfinite(values)
        whole = seen.all(axis=1)
        if len(when) >= 2 and whole.any():
            out[whole, k] = _at_edges(when, values[whole], edges, interval)
        for s in np.flatnonzero(~whole & (np.count_nonzero(seen, axis=1) >= 2)):
            out[s, k] = _at_edges(when[seen[s]], values[s : s + 1, seen[s]], edges, interval)[0]
    return np.diff(out, axis=2) / np.diff(edges)


def _at_edges(times: FloatArray, values: FloatArray, edges: FloatArray, interval: float) -> FloatArray:
    """(S, T+1) of (S, n) values at (n,) ascending times."""
    distances = np.diff(times)
    limit = GAP * max(interval, float(np.median(distances)))
    after = np.clip(np.searchsorted(times, edges), 1, len(times) - 1)
    before = after - 1
    share = np.clip((edges - times[before]) / distances[before], 0.0, 1.0)
    at = values[:, before] + (values[:, after] - values[:, before]) * share
    unknown = (distances[before] > limit) & (share > 0) & (share < 1)
    unknown |= (edges < times[0] - SLACK_S) | (edges > times[-1] + SLACK_S)
    at[:, unknown] = np.nan
    return at


def means(arrived: FloatArray, values: FloatArray, edges: FloatArray, interval: float) -> FloatArray:
    """(R, T) mean of gauges over each interval, from (n, R) values that were served at (n,) times.

    An interval without a sample takes the last one before it, up to GAP intervals of `interval` seconds old at the interval's middle.
    The last interval includes its end.
    """
    middles = (edges[:-1] + edges[1:]) / 2
    if not len(middles) or not len(arrived):
        return np.full((values.shape[1], len(middles)), np.nan)
    first = int(np.searchsorted(arrived, min(edges[0], middles[0] - GAP * interval)))  # what is older reaches no interval
    arrived, values = arrived[first:], values[first:]
    seen = np.isfinite(values)
    none = np.zeros((1, values.shape[1]))
    sums = np.concatenate([none, np.cumsum(np.where(seen, values, 0.0), axis=0)])
    counts = np.concatenate([none, np.cumsum(seen, axis=0)])
    cuts = np.searchsorted(arrived, edges)
    cuts[-1] = np.searchsorted(arrived, edges[-1], side="right")
    number = np.diff(counts[cuts], axis=0)
    out: FloatArray = np.full(number.shape, np.nan)
    np.divide(np.diff(sums[cuts], axis=0), number, out=out, where=number > 0)
    empty = number == 0
    if empty.any() and len(arrived):
        newest = np.maximum.accumulate(np.where(seen, np.arange(len(arrived))[:, None], -1), axis=0)
        last = np.where(cuts[:-1, None] > 0, newest[np.maximum(cuts[:-1] - 1, 0)], -1)
        fresh = empty & (last >= 0) & (middles[:, None] - arrived[last] <= GAP * interval)
        out[fresh] = values[last[fresh], np.nonzero(fresh)[1]]
    return out.T
