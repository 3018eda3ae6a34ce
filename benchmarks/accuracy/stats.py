"""Shares, scores and their 95 % intervals. Pure arithmetic."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

Item = TypeVar("Item")
Z = 1.96  # two-sided 95 %
_DRAWS = 1000  # bootstrap: the ends of the interval then move by less than a percent of its width between seeds


@dataclass(frozen=True, slots=True)
class Interval:
    """An estimate with the ends of its 95 % interval, and of how many it is. NaN when there were none."""

    value: float
    low: float
    high: float
    of: int

    def __str__(self) -> str:
        return f"{self.value:.3f} [{self.low:.3f}, {self.high:.3f}] of {self.of}" if self.of else "- (no runs)"


def wilson(right: int, of: int) -> Interval:
    """A share with Wilson's interval, which stays inside 0..1 and is honest at 0 and at 1."""
    if not of:
        return Interval(math.nan, math.nan, math.nan, 0)
    p = right / of
    centre = (p + Z * Z / (2 * of)) / (1 + Z * Z / of)
    half = Z * math.sqrt(p * (1 - p) / of + Z * Z / (4 * of * of)) / (1 + Z * Z / of)
    return Interval(p, max(0.0, centre - half), min(1.0, centre + half), of)


def poisson_rate(events: int, exposure: float) -> Interval:
    """Events per unit of exposure. For none the upper end is 3/exposure (the rule of three); else Byar's approximation."""
    if not exposure:
        return Interval(math.nan, math.nan, math.nan, 0)
    if not events:
        return Interval(0.0, 0.0, 3.0 / exposure, 1)
    low = events * (1 - 1 / (9 * events) - Z / (3 * math.sqrt(events))) ** 3
    more = events + 1
    high = more * (1 - 1 / (9 * more) + Z / (3 * math.sqrt(more))) ** 3
    return Interval(events / exposure, low / exposure, high / exposure, events)


def macro_f1(pairs: Sequence[tuple[str, str]]) -> float:
    """The mean over the classes that truly occur of F1 = 2 TP / (2 TP + FP + FN). `pairs` are (truth, said)."""
    classes = sorted({truth for truth, _ in pairs})
    scores = []
    for klass in classes:
        both = sum(truth == klass == said for truth, said in pairs)
        either = sum((truth == klass) + (said == klass) for truth, said in pairs)
        scores.append(2 * both / either)
    return sum(scores) / len(scores) if scores else math.nan


def bootstrap(values: Sequence[Item], score: Callable[[Sequence[Item]], float], seed: int = 1) -> Interval:
    """`score` of the values, with the percentile bootstrap's interval; the same seed gives the same interval."""
    if not values:
        return Interval(math.nan, math.nan, math.nan, 0)
    rng = np.random.default_rng(seed)
    drawn = [score([values[i] for i in rng.integers(len(values), size=len(values))]) for _ in range(_DRAWS)]
    low, high = (float(np.nanquantile(drawn, q, method="inverted_cdf")) for q in (0.025, 0.975))
    return Interval(score(values), low, high, len(values))


def quantile(times: Sequence[float], q: float) -> float:
    """A quantile in which "never" (infinity) takes part: an observed value, the least that a share `q` does not exceed."""
    ordered = sorted(times)
    return ordered[max(0, math.ceil(q * len(ordered)) - 1)] if ordered else math.nan


@dataclass(frozen=True, slots=True)
class Bin:
    """Verdicts whose confidence lies in [low, high): how many, their mean confidence, and the share that was right."""

    low: float
    high: float
    n: int
    confidence: float
    right: Interval


def reliability(pairs: Sequence[tuple[float, bool]], edges: Sequence[float] = (0.0, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 1.0)) -> list[Bin]:
    """Pairs of (confidence, right?) by bin; empty bins are left out. The last bin holds its upper edge."""
    bins = []
    for low, high in itertools.pairwise(edges):
        inside = [(c, r) for c, r in pairs if low <= c < high or c == high == edges[-1]]
        if inside:
            right = wilson(sum(r for _, r in inside), len(inside))
            bins.append(Bin(low, high, len(inside), sum(c for c, _ in inside) / len(inside), right))
    return bins


def ece(bins: Sequence[Bin]) -> float:
    """Expected calibration error: the mean distance between confidence and share right, weighted by the bins' sizes."""
    total = sum(b.n for b in bins)
    return sum(b.n * abs(b.confidence - b.right.value) for b in bins) / total if total else math.nan
