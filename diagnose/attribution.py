"""Whose fault the lost time is: the device channel, how attention work is dealt and what it costs. Pure.

The cadence of a lockstep group follows the busiest rank: C = c0 + s max_r P_r + prefill + host + e, with P attention pairs per decode
step and s seconds per pair (decoding reads each pair's KV once, so s is bytes per token over the card's memory bandwidth).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from collector import signals
from collector.model import FloatArray, Window, once_a_window
from diagnose import cards, lockstep, sums
from diagnose.model import Share

EFFICIENCY = (0.4, 0.7, 1.0)
"""Share of peak memory bandwidth that decode attention reaches: low, typical, the bound that nothing can pass. FlashMLA's authors state
up to 3.0 TB/s on an H800 of 3.35 TB/s, 0.9. That short contexts fall to 0.4 is an assumption, as is the middle: wide on purpose, because
the engine's own cadence narrows it."""


MOST_POINTS = 60
"""Points in a slope: 1,770 pairs, a tenth of a millisecond; five minutes give means of five seconds, longer than any flush."""

SLIGHT = 0.04
"""Share of step time that all attention of the busiest rank takes at the dearest below which its price is left as the card has it: what its
range leaves open, 0.6 of that, is half of the least that is blamed, and a cadence that follows such pairs has another cause. Arithmetic."""

DRIFT = 0.05
"""Share of step time by which a healthy engine's windows differ: benchmarks/healthy_spread.py, largest 0.03."""


@dataclass(frozen=True, slots=True)
class PairCost:
    """Seconds per attention pair of a decode step, and where the figure comes from."""

    mid: float
    low: float
    high: float
    source: str


def pair_cost(window: Window, baseline: Window | None = None) -> PairCost | None:
    """Seconds per pair from the card's bandwidth and the KV cache's bytes per token, narrowed by the window's own cadence if that varies
    with the busiest rank's pairs, and by the rise over the past if the busiest rank's pairs grew; None when nothing supports a figure."""
    cost, step = physical_cost(window), lockstep.cadence(window)
    if cost is not None and step is not None and cost.high * lockstep.most(mean_pairs(window)) < SLIGHT * step:
        return cost
    for other in (_fitted(window), _history(window, baseline)):
        cost = _narrowed(cost, other)
    return cost


def _narrowed(cost: PairCost | None, other: PairCost | None) -> PairCost | None:
    """The overlap of two estimates; the first alone when they contradict, as then something else moved with the pairs."""
    if cost is None or other is None:
        return cost or other
    low, high = max(cost.low, other.low), min(cost.high, other.high)
    if low >= high:
        return cost
    return PairCost(min(max(other.mid if other.low > 0 else cost.mid, low), high), low, high, f"{cost.source}, narrowed by {other.source}")


def physical_cost(window: Window) -> PairCost | None:
    """Seconds per pair from the card's bandwidth and the KV cache's bytes per token; None for an unknown card or cache."""
    facts = window.engine.facts
    peak = cards.bandwidth(facts.accelerator)
    if peak is None or facts.kv_bytes_per_token is None or not 0 < facts.kv_bytes_per_token < np.inf:
        return None
    poor, typical, best = (facts.kv_bytes_per_token / (peak * share) for share in EFFICIENCY)
    return PairCost(typical, best, poor, f"{facts.kv_bytes_per_token:,.0f} B of KV per token at {peak / 1e12:.1f} TB/s")


@once_a_window
def _fitted(window: Window) -> PairCost | None:
    """Theil-Sen slope of cadence on the busiest rank's decode pairs over the window's intervals; None unless clearly positive."""
    steps, busiest = lockstep.cadence_series(window), np.fmax.reduce(decode_pairs(window), axis=0)
    usable = np.isfinite(steps) & np.isfinite(busiest)
    if usable.sum() < 6:  # fewer points leave the confidence interval of the slope unbounded at 95 %
        return None
    x, y = _thinned(busiest[usable]), _thinned(steps[usable])
    if not np.ptp(x) > 0.25 * lockstep.median(x):  # without variation of the leader's load there is no slope to see
        return None
    from scipy.stats import theilslopes

    with np.errstate(all="ignore"):  # ties and tiny differences leave infinite slopes or no interval, which are refused below
        slope, _, low, high = (float(v) for v in theilslopes(y, x, 0.95))
    return PairCost(slope, low, high, "the window's own cadence") if low > 0 and np.isfinite((slope, high)).all() else None


def _thinned(values: FloatArray) -> FloatArray:
    """At most MOST_POINTS consecutive means: a slope is taken over all pairs of points, so its cost grows with their square."""
    return np.asarray(sums.by_part(values[None], min(MOST_POINTS, len(values)))[0])


def _history(window: Window, baseline: Window | None) -> PairCost | None:
    """The most that a pair can cost, if all of the rise over the past came of the busiest rank's added pairs."""
    if baseline is None:
        return None
    now, before = lockstep.cadence(window), lockstep.cadence(baseline)
    load_now, load_before = mean_pairs(window), mean_pairs(baseline)
    if now is None or before is None or not np.isfinite(load_now).any() or not np.isfinite(load_before).any():
        return None
    most = lockstep.most(load_before)
    grown = lockstep.most(load_now) - most
    rise = now - before
    if grown < 0.5 * most or rise <= 0:  # a small growth says little: the rise may be of anything
        return None
    return PairCost(rise / grown, 0.0, (rise + DRIFT * before) / grown, "the rise over the engine's past")


@once_a_window
def decode_pairs(window: Window) -> FloatArray:
    """(R, T) attention pairs per decode step.

    The engine's pair counter also holds prefill, whose pairs are a hundred times as many and cost far less each; the KV tokens of live
    requests are what one decode step reads. So the lesser of the two where both are known.
    """
    resident = window.get(signals.RESIDENT_TOKENS)
    steps = window.get(signals.STEPS_ACTIVE) + window.get(signals.STEPS_IDLE)
    counted = np.full(resident.shape, np.nan)
    np.divide(window.get(signals.ATTENTION_PAIRS), steps, out=counted, where=np.isfinite(steps) & (steps > lockstep.LEAST_RATE))
    lesser: FloatArray = np.fmin(resident, counted)
    return lesser


@once_a_window
def mean_pairs(window: Window) -> FloatArray:
    """(R,) attention pairs per decode step over the window; NaN: not observed."""
    return lockstep.nanmean(decode_pairs(window))


@dataclass(frozen=True, slots=True)
class PairLoad:
    """Attention work per decode step, and what its uneven deal costs."""

    pairs: FloatArray  # (R,) per decode step
    leader: int  # row
    lost: Share | None  # of step time; None when the cost of a pair is unknown
    cost: PairCost | None
    sources: tuple[str, ...]  # signals that it rests on

    @property
    def busiest(self) -> float:
        return float(self.pairs[self.leader])


def pair_load(window: Window, baseline: Window | None = None) -> PairLoad | None:
    """The deal of attention work in a window; None without a second rank to compare, and when only the pair counter was observed while
    prompts were computed, since that counter cannot tell their pairs from those of decoding."""
    if not dealt(window):
        return None
    pairs = mean_pairs(window)
    used = tuple(s for s in (signals.ATTENTION_PAIRS, signals.RESIDENT_TOKENS) if window.has(s))
    leader = lockstep.highest(pairs)
    step_time, cost = lockstep.cadence(window), pair_cost(window, baseline)
    lost = None
    if step_time and cost:
        excess = float(pairs[leader]) - lockstep.average(pairs)
        low, mid, high = (min(1.0, excess * s / step_time) for s in (cost.low, cost.mid, cost.high))
        lost = Share(mid, low, high)
    return PairLoad(pairs, leader, lost, cost, used)


@once_a_window
def dealt(window: Window) -> bool:
    """Whether the pairs of at least two ranks are known, and are those of decoding."""
    observed = int(np.count_nonzero(np.isfinite(mean_pairs(window))))
    return observed > 1 and (window.has(signals.RESIDENT_TOKENS) or _only_decodes(window))


def _only_decodes(window: Window) -> bool:
    return window.has(signals.PREFILL_TOKENS) and sums.total(window.mean(signals.PREFILL_TOKENS)) == 0.0


@once_a_window
def tokens_per_step(window: Window) -> float | None:
    """Tokens that the whole group puts into one step; None when not observed."""
    tokens = lockstep.per_step(window, signals.ATTENTION_TOKENS)
    return sums.total(tokens) if np.isfinite(tokens).any() else None


@once_a_window
def balancedness(window: Window) -> float | None:
    """Mean over cards / max over cards of expert load, 1 is level; from the sum and count of the window alone, as the engine's summary
    holds the whole life. None when not observed or no observation fell into the window."""
    total, count = window.mean(signals.BALANCEDNESS_SUM), window.mean(signals.BALANCEDNESS_COUNT)
    counted = sums.total(count)
    if not np.isfinite(total).any() or not counted > lockstep.LEAST_RATE:
        return None
    return sums.total(total) / counted
