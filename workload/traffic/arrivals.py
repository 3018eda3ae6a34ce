"""When requests come, for the open loops: arrival times as an endless stream. Pure."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator

from workload.traffic.model import BurstLoop, DiurnalLoop, GammaLoop, Open, OpenLoop


def times(arrivals: Open, rng: random.Random) -> Iterator[float]:
    """Seconds since the start, never falling, without end."""
    match arrivals:
        case OpenLoop(rate=rate):
            return _poisson(rate, rng)
        case GammaLoop():
            return _gamma(arrivals, rng)
        case BurstLoop():
            return _bursts(arrivals, rng)
        case DiurnalLoop():
            return _diurnal(arrivals, rng)


def _poisson(rate: float, rng: random.Random) -> Iterator[float]:
    at = 0.0
    while True:
        at += rng.expovariate(rate)
        yield at


def _gamma(arrivals: GammaLoop, rng: random.Random) -> Iterator[float]:
    shape = 1 / arrivals.cv**2  # a gamma variable's deviation over its mean is shape ** -0.5
    scale = 1 / (arrivals.rate * shape)
    at = 0.0
    while True:
        at += rng.gammavariate(shape, scale)
        yield at


def _bursts(arrivals: BurstLoop, rng: random.Random) -> Iterator[float]:
    at, bursting = 0.0, False
    while True:
        rate = arrivals.burst if bursting else arrivals.calm
        end = at + rng.expovariate(1 / (arrivals.burst_seconds if bursting else arrivals.calm_seconds))
        while rate > 0 and (arrival := at + rng.expovariate(rate)) < end:
            at = arrival
            yield at
        at, bursting = end, not bursting  # memoryless: what was left of the last gap need not be carried over


def _diurnal(arrivals: DiurnalLoop, rng: random.Random) -> Iterator[float]:
    peak = arrivals.rate * (1 + arrivals.swing)
    for at in _poisson(peak, rng):  # thinned down to the rate of the moment
        rate = arrivals.rate * (1 + arrivals.swing * math.sin(2 * math.pi * at / arrivals.period))
        if rng.random() * peak < rate:
            yield at
