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

from diagnose.model import Class

MISSING = 0.75
"""Factor for each absent signal that would have confirmed a finding or told it from its neighbour."""

CEILING = 0.97
"""What a rule states at most; how often it is then right is the table's to say."""


OWN = 0.05
"""Part of the stated confidence in the calibrated one: it rises where the table is flat, so that weaker evidence never says as much, and
moves by a twentieth at most."""


class Record(msgspec.Struct, frozen=True):
    """How one rule did: `shift` of the log odds against all rules together, `ceiling` what as many runs leave
    to believe at best, of how many `runs`."""

    shift: float
    ceiling: float
    runs: int


class Calibration(msgspec.Struct, frozen=True):
    """`calibrated[i]` is the share right of what is stated as `stated[i]`, of all rules; both rise; between them it is interpolated.

    `verdicts` from `runs` labelled runs made it. A rule that is not in `rules` never spoke in them and takes what holds for all.
    `healthy` is the confidence in a window called healthy when everything was looked at.
    """

    made_by: str  # the command
    device: str  # what the runs ran on
    seeds: str
    runs: int
    verdicts: int
    stated: tuple[float, ...]
    calibrated: tuple[float, ...]
    ceiling: float
    rules: dict[str, Record]
    healthy: float
    healthy_verdicts: int

    def of(self, stated: float, rule: str) -> float:
        """The share right of what `rule` states so, 0..1."""
        known = self.rules.get(rule, Record(0.0, self.ceiling, 0))
        share = float(np.interp(stated, self.stated, self.calibrated))
        if 0.0 < share < 1.0:
            share = 1.0 / (1.0 + (1.0 - share) / share * math.exp(-known.shift))
        return round((1.0 - OWN) * min(share, known.ceiling) + OWN * known.ceiling * stated, 3)


@cache
def calibration() -> Calibration:
    """The table that is shipped."""
    return msgspec.json.decode((resources.files("diagnose") / "calibration.json").read_bytes(), type=Calibration)


def calibrated(stated: float, rule: str) -> float:
    """The share of `rule`'s verdicts stated so that was right, 0..1; it rises with what is stated, at most to the ceiling."""
    return calibration().of(stated, rule)


HABIT = 0.8
"""Confidence at most in a load or a layout that is blamed without a past: what an agents' engine does by itself for half a minute can cost
as much (one of 160 healthy windows, seeds 0 to 7), and only a past tells a habit from a fault."""

_HABITS = (Class.LOAD, Class.STRUCTURAL, Class.OUTSIDE)


def told(stated: float, rule: str, klass: Class, *, compared: bool) -> float:
    """What is told of a verdict, 0..1: `calibrated`, and at most HABIT of a load or a layout that was not compared with a past."""
    found = calibrated(stated, rule)
    return found if compared or klass not in _HABITS else min(found, HABIT)


def confidence(share: float, threshold: float, *, agreement: float = 1.0, missing: int = 0) -> float:
    """0..1: one half at the threshold, rising with the margin over it, lowered by disagreement in time and by absent signals."""
    margin = max(0.0, share / threshold - 1.0)
    base = 1.0 - 0.5 * math.exp(-margin)
    return round(min(CEILING, base * (0.5 + 0.5 * agreement) * MISSING**missing), 3)
