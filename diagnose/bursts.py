"""Whether requests came to one rank at once: its requests against its peers' through time. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from collector import signals
from collector.model import Window, once_a_window
from diagnose import lockstep

FEWEST = 4.0
"""Peers' requests below which chance is counted as for this many: on nearly idle ranks two requests are no burst. Arithmetic."""


FALL = 1 / 3
"""Part of the excess over the peers that must go again: requests that stay swing by a few of many. Half of it goes in ten seconds of pages
each 2 s; means over 5 s, as long as the bursts are apart, smooth 1.0 of it to 0.47 and more (rag, seed 1)."""


@dataclass(frozen=True, slots=True)
class Burst:
    """The requests that a rank holds beyond its peers, running and waiting, at their highest and lowest in the window."""

    peak: float  # requests of the rank at its peak
    peers: float  # of its peers' median then
    swing: float  # requests between the highest and the lowest excess over the peers
    chance: float  # requests by which chance moves such counts: the root of the peers' usual number
    taken: float  # `swing` over that of all ranks' requests together, at most 1: whether the rank alone has what came


def burst(window: Window, row: int) -> Burst | None:
    """How the requests of the rank in `row` swing against its peers'; None when requests were not counted, or there are no peers or
    no second moment."""
    if len(window.ranks) < 2:
        return None
    held = window.get(signals.RUNNING) + window.get(signals.WAITING)
    usual = lockstep.nanmedian(np.delete(held, row, axis=0))
    excess = held[row] - usual
    known = np.isfinite(excess)
    if known.sum() < 2:
        return None
    at = lockstep.highest(excess)
    level = lockstep.median(usual[known])
    swing = float(excess[known].max() - excess[known].min())
    together = held[:, known].sum(axis=0)  # a rank not observed now and then leaves it unknown then
    moved = lockstep.most(together) - lockstep.least(together)
    taken = swing / moved if moved > swing else 1.0
    return Burst(float(held[row, at]), float(usual[at]), swing, math.sqrt(max(level, FEWEST)), taken)


def is_burst(found: Burst | None, swing: float, taken: float) -> bool:
    """Whether the requests swing by `swing` times what chance does, fall back by at least FALL of their excess, and are `taken` of
    what the whole group's swing by: traffic that comes in bursts by itself reaches all ranks alike."""
    if found is None:
        return False
    return found.swing >= swing * found.chance and found.swing >= FALL * (found.peak - found.peers) and found.taken >= taken


COARSE = 4.0
"""s of an interval from which bursts that come every few seconds may pass for a crowd that stays. The service's pages are 5 s apart."""

CROWD = 1.6
"""Times the peers' requests from which a rank whose intervals are COARSE holds a crowd: misrouted bursts of 20 held it at 2.1 to 29 times,
a lost cache at 1.5 at most (seeds 0 to 2, four traffics), each rank for as long as its prompts take."""


def is_crowd(window: Window, row: int, swing: float) -> bool:
    """Whether the rank in `row` holds far more requests than its peers throughout a window too coarse to show if they come at once: CROWD
    times as many, and more of them than `swing` times what chance moves."""
    if not len(window.edges) > 1 or float(np.median(np.diff(window.edges))) < COARSE:
        return False
    held = window.mean(signals.RUNNING) + window.mean(signals.WAITING)
    usual = float(lockstep.peers_median(held)[row])
    return bool(held[row] >= CROWD * usual and held[row] - usual >= swing * math.sqrt(max(usual, FEWEST)))


@once_a_window
def on_any(window: Window, swing: float, taken: float) -> bool:
    """Whether requests came to any of the ranks at once."""
    return any(is_burst(burst(window, row), swing, taken) for row in range(len(window.ranks)))
