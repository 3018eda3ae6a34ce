"""Requests as seeded random draws. Pure: who sends them, and when, is the front end's business."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass

from workload.config import Lengths, Traffic


@dataclass(frozen=True, slots=True)
class Shape:
    """Tokens of prompt, how many of them are cached, tokens of answer."""

    prompt: int
    cached: int
    output: int


def draw(lengths: Lengths, rng: random.Random) -> int:
    """One length, in tokens."""
    return min(max(round(lengths.median * math.exp(lengths.sigma * rng.gauss(0, 1))), lengths.low), lengths.high)


def shape(prompt: Lengths, fresh: Lengths | None, output: Lengths, rng: random.Random) -> Shape:
    """One request. Without `fresh` nothing of the prompt is cached."""
    length = draw(prompt, rng)
    new = length if fresh is None else min(draw(fresh, rng), length)
    return Shape(prompt=length, cached=length - new, output=draw(output, rng))


class Source:
    """The stream of one cluster's requests, the same for the same seed."""

    def __init__(self, traffic: Traffic, seed: int) -> None:
        self._traffic = traffic
        self._rng = random.Random(seed)

    def request(self) -> Shape:
        return shape(self._traffic.prompt, self._traffic.fresh, self._traffic.output, self._rng)

    def pause(self, mean: float) -> float:
        """Seconds until the next request of a memoryless source with this mean."""
        return self._rng.expovariate(1 / mean) if mean > 0 else 0.0

    def residue(self, shape: Shape) -> Shape:
        """The rest of a request that has been running for a while: so a cluster starts with its crowd in mid-conversation."""
        return Shape(shape.prompt, shape.cached, max(1, round(shape.output * self._rng.random())))

    def chance(self, probability: float) -> bool:
        return self._rng.random() < probability
