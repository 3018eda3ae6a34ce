"""Open loops send at the rate, and with the unevenness, that they say."""

from __future__ import annotations

import itertools
import math
import random
import statistics

import pytest

from workload.traffic.arrivals import times
from workload.traffic.model import BurstLoop, DiurnalLoop, GammaLoop, Open, OpenLoop
from workload.traffic.presets import BURSTY

KINDS: list[Open] = [
    OpenLoop(rate=5.0),
    GammaLoop(rate=5.0, cv=3.0),
    BurstLoop(calm=2.0, burst=29.0, calm_seconds=8.0, burst_seconds=1.0),  # 8/9 x 2 + 1/9 x 29 = 5
    DiurnalLoop(rate=5.0, swing=0.6, period=100.0),
]


def until(arrivals: Open, seconds: float, seed: int = 1) -> list[float]:
    return list(itertools.takewhile(lambda at: at < seconds, times(arrivals, random.Random(seed))))


def counts(arrivals: list[float], width: float, number: int) -> list[int]:
    found = [0] * number
    for at in arrivals:
        found[int(at / width)] += 1
    return found


@pytest.mark.parametrize("arrivals", KINDS, ids=lambda a: type(a).__name__)
def test_the_mean_rate_is_as_asked_and_time_never_falls(arrivals):
    """Over 4,000 s each of them sends about 5 a second, the same for the same seed."""
    found = until(arrivals, 4000.0)
    assert found == sorted(found)
    assert len(found) / 4000 == pytest.approx(5.0, rel=0.08)
    assert found == until(arrivals, 4000.0)
    assert found[:20] != until(arrivals, 4000.0, seed=2)[:20]


@pytest.mark.parametrize("cv", [0.5, 1.0, 3.0])
def test_gamma_gaps_have_the_deviation_asked_for(cv):
    """Deviation over mean of the gaps; 1 is Poisson."""
    found = until(GammaLoop(rate=5.0, cv=cv), 8000.0)
    gaps = [b - a for a, b in itertools.pairwise(found)]
    assert statistics.stdev(gaps) / statistics.mean(gaps) == pytest.approx(cv, rel=0.05)


def test_poisson_counts_have_the_variance_of_their_mean():
    """Variance over mean of the counts per 10 s is 1."""
    per_window = counts(until(OpenLoop(rate=5.0), 10_000.0), 10.0, 1000)
    assert statistics.variance(per_window) / statistics.mean(per_window) == pytest.approx(1.0, rel=0.15)


def test_bursts_are_as_uneven_as_a_two_state_process_must_be():
    """On long counts variance over mean is 1 + 2 p q (burst - calm)^2 / (rate (1/Tc + 1/Tb)), with p and q the shares of both states."""
    arrivals = BURSTY.arrivals
    assert isinstance(arrivals, BurstLoop)
    ends = 1 / arrivals.calm_seconds + 1 / arrivals.burst_seconds
    p = arrivals.burst_seconds / (arrivals.burst_seconds + arrivals.calm_seconds)
    rate = p * arrivals.burst + (1 - p) * arrivals.calm
    expected = 1 + 2 * p * (1 - p) * (arrivals.burst - arrivals.calm) ** 2 / (rate * ends)
    assert (rate, expected) == pytest.approx((4.0, 101.0))  # what the preset's comment promises
    per_window = counts(until(arrivals, 200_000.0), 500.0, 400)
    assert statistics.variance(per_window) / statistics.mean(per_window) == pytest.approx(expected, rel=0.2)


def test_a_day_rises_and_falls():
    """The rising half of a sine of swing s has 1 + 2 s / pi times the mean, the falling half 1 - 2 s / pi."""
    found = until(DiurnalLoop(rate=5.0, swing=0.6, period=100.0), 10_000.0)
    first = sum(at % 100 < 50 for at in found) / 5000
    second = sum(at % 100 >= 50 for at in found) / 5000
    assert (first, second) == pytest.approx((5 * (1 + 1.2 / math.pi), 5 * (1 - 1.2 / math.pi)), rel=0.03)


def test_a_state_without_arrivals_passes():
    """A calm of rate 0 is silence between bursts, not the end."""
    found = until(BurstLoop(calm=0.0, burst=50.0, calm_seconds=9.0, burst_seconds=1.0), 2000.0)
    assert len(found) / 2000 == pytest.approx(5.0, rel=0.15)
