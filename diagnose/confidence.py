"""How sure a finding is. Not yet calibrated on labelled runs: an ordering of findings, not a frequency."""

from __future__ import annotations

import math

MISSING = 0.75
"""Factor for each absent signal that would have confirmed a finding or told it from its neighbour."""

CEILING = 0.97
"""No figure above this before calibration: a few dozen runs cannot tell .97 from 1."""


def confidence(share: float, threshold: float, *, agreement: float = 1.0, missing: int = 0) -> float:
    """0..1: one half at the threshold, rising with the margin over it, lowered by disagreement in time and by absent signals."""
    margin = max(0.0, share / threshold - 1.0)
    base = 1.0 - 0.5 * math.exp(-margin)
    return round(min(CEILING, base * (0.5 + 0.5 * agreement) * MISSING**missing), 3)
