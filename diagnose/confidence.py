"""How sure a finding is: what the rules state, and the share of labelled runs in which such a statement was right.

A rule states an ordering of findings (`confidence`). `calibrated` looks up how often verdicts that were stated so were right: class,
cause, and no rank named that was not ill. The table, `calibration.json`, is made from simulated runs of seeds that no accuracy figure is
measured on; it holds the command that makes it.
"""

from __future__ import annotations

import math
from functools import cache
from importlib import resources

import msgspec
import numpy as np

MISSING = 0.75
"""Factor for each absent signal that would have confirmed a finding or told it from its neighbour."""

CEILING = 0.97
"""What a rule states at most; how often it is then right is the table's to say."""


class Calibration(msgspec.Struct, frozen=True):
    """`calibrated[i]` is the confidence of what is stated as `stated[i]`, both rising; between them it is interpolated.

    `verdicts` from `runs` labelled runs made it; `healthy` is the confidence in a window called healthy when everything was looked at.
    """

    made_by: str  # the command
    device: str  # what the runs ran on
    seeds: str
    runs: int
    verdicts: int
    stated: tuple[float, ...]
    calibrated: tuple[float, ...]
    healthy: float
    healthy_verdicts: int


@cache
def calibration() -> Calibration:
    """The table that is shipped."""
    return msgspec.json.decode((resources.files("diagnose") / "calibration.json").read_bytes(), type=Calibration)


def calibrated(stated: float) -> float:
    """The share of verdicts stated so that was right, 0..1; it rises with what is stated, to at most what the runs prove."""
    table = calibration()
    return round(float(np.interp(stated, table.stated, table.calibrated)), 3)


def confidence(share: float, threshold: float, *, agreement: float = 1.0, missing: int = 0) -> float:
    """0..1: one half at the threshold, rising with the margin over it, lowered by disagreement in time and by absent signals."""
    margin = max(0.0, share / threshold - 1.0)
    base = 1.0 - 0.5 * math.exp(-margin)
    return round(min(CEILING, base * (0.5 + 0.5 * agreement) * MISSING**missing), 3)
