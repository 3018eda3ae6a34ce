"""Tokens that a request gets from a decode step, rank by rank: what speculative decoding gives, and on whom it fails. Pure."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from collector import signals
from collector.model import Window, once_a_window
from diagnose import blocks, lockstep
from diagnose.leading import leads
from diagnose.rules import Threshold

PLAIN = 1.001
"""Tokens per request and step up to which an engine does not speculate: a step without drafts makes exactly 1; beyond a thousandth no
rounding of a cumulative sum reaches."""

THRESHOLDS = {
    "ratio": Threshold(
        0.7,
        "x the peers' tokens per step",
        "healthy ranks fall to at least 0.96 (healthy_spread.py --engine speculating, 18 windows); one stream's content moves it by 0.36 of"
        " its mean (nine kinds of prompt on one engine), 8 requests' mean by 0.13: 0.7 is 2.3 times that below",
    ),
    "requests": Threshold(
        4.0,
        "running requests",
        "the mean of 4 streams differs by 0.36 / 2 = 0.18 by content alone; of fewer, one odd prompt passes for an odd rank, unless no rank"
        " of the past came near it in a stretch as long: 1.04 to 1.12 tokens against 2.0 and more (seeds 0 to 2)",
    ),
    "leads": Threshold(
        0.8,
        "of intervals",
        "the lowest of 8 healthy ranks is so in at most 0.6 of the intervals (healthy_spread.py --engine speculating, 18 windows)",
    ),
}


@dataclass(frozen=True, slots=True)
class Shortfall:
    """The rank whose requests get the least from a step: `own` tokens against `peers` (leave-one-out median), `steady` share of
    intervals in which it is the lowest."""

    row: int
    own: float
    peers: float
    steady: float

    @property
    def ratio(self) -> float:
        return self.own / max(self.peers, 1e-9)


def speculates(window: Window) -> bool | None:
    """Whether some rank makes more than one token per request and step; None when that was not observed."""
    length = window.mean(signals.ACCEPT_LENGTH)
    return bool(np.nanmax(length) > PLAIN) if np.isfinite(length).any() else None


def shortfall(window: Window) -> Shortfall | None:
    """The rank that gets least from its drafts; None without two ranks to compare or without speculation."""
    length = window.mean(signals.ACCEPT_LENGTH)
    if np.isfinite(length).sum() < 2 or not speculates(window):
        return None
    row = lockstep.highest(-length)
    peers = float(lockstep.peers_median(length)[row])
    return Shortfall(row, float(length[row]), peers, leads(-window.get(signals.ACCEPT_LENGTH), row))


@once_a_window
def lowest(past: Window, seconds: float) -> float | None:
    """The fewest tokens per request and step that any rank got in stretches of at least `seconds`; None for a past too short to say, or
    if nobody counted them."""
    if blocks.count(past, seconds) < blocks.SPEAKS:
        return None
    length = blocks.means(past, signals.ACCEPT_LENGTH, seconds)
    return float(lockstep.least(length.ravel())) if np.isfinite(length).any() else None


def explains(window: Window, rows: tuple[int, ...], count_ratio: float) -> bool:
    """Whether `rows` hold `count_ratio` times their peers' requests only because each of these needs that many more steps."""
    short = shortfall(window)
    if short is None or rows != (short.row,) or short.ratio > THRESHOLDS["ratio"].value:
        return False
    return count_ratio * short.ratio < 1.0 / THRESHOLDS["ratio"].value
