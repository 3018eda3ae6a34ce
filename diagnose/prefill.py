"""What one rank's prefill costs the ranks that decode. Pure.

While one rank runs a prefill step everybody's step lasts as long. Dealt evenly, the ranks would prefill in the same steps, so the group
would spend the mean instead of the maximum of the ranks' prefill time that way.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

import numpy as np

from collector import signals
from collector.model import FloatArray, Window, once_a_window
from diagnose import blocks, bursts, lockstep, sums
from diagnose.model import Share
from diagnose.rules import Limits, Threshold

FEW = 0.02
"""Share of the group's steps below which prefill steps are too few to time: the difference of two large counts."""

THRESHOLDS = {
    "share": Threshold(
        0.05,
        "of step time",
        "healthy chat traffic loses at most 0.002 to uneven prefill (healthy_spread.py); 48K-token prompts on one rank lost 0.5",
    ),
    "lead": Threshold(
        2.5,
        "x the peers' prefill time",
        "healthy windows that cost time reach 2.51 with questions about documents (healthy_spread.py, rag); faults had 3.0 and more",
    ),
    "ahead": Threshold(
        2.0,
        "x the peers' prefill time, where the past was more even",
        "ranks that a burst of the traffic itself reaches first or leaves last prefilled up to 1.9 times as long; faults 2.04 and more",
    ),
    "beyond": Threshold(
        1.4,
        "x the peers' prefill time, where it is `far` from the past",
        "while every rank prefills half of the time, one that does nothing else has 1.9 times its peers (long prompts, the daily wave)",
    ),
    "far": Threshold(
        4.0,
        "x the past's most uneven prefill",
        "healthy windows of 30 s with 1.4 to 2 times the peers' prefill had up to 3.6 (bursty, 96), of other traffics 2.3; faults 3.9 to 7",
    ),
    "agreement": Threshold(
        0.75,
        "of the window's blocks",
        "all of 2 or 3 blocks: with coding agents some rank leads 0.7 of all windows, and all blocks of 0.17 of them",
    ),
    "some": Threshold(
        0.5,
        "of the window's blocks",
        "2 of 3 where the past had nothing like it: lost caches lead in 0.67 at least, as a block of 3 s can pass without a request",
    ),
    "usual": Threshold(
        2.0,
        "x the past's most uneven prefill",
        "windows of coding agents in which one rank led all along had up to 1.91 times the worst of the half minute before; faults had 9",
    ),
    "longer": Threshold(
        1.05,
        "x the past's prompt tokens per first token",
        "a rank that a burst of the traffic itself left last prefilled alone with requests as long as ever, 0.69 to 1.03 (bursty, seed 0);"
        " 65 of 68 windows of long prompts on one rank had more (six traffics)",
    ),
    "worst": Threshold(
        0.85,
        "x the past's most uneven block of 3 s",
        "windows of agents in which one rank led all along had up to 0.84 of it (219, seeds 0 to 15); long prompts on one 0.9 to 1.4 with"
        " documents and the daily wave, 24 and more with chat",
    ),
    "block": Threshold(
        0.01,
        "of step time in a block",
        "a fifth of what the window must lose: faults lost at least 0.02 in each block, blocks without a prompt lose 0",
    ),
    "hit": Threshold(
        0.3,
        "of prompt tokens",
        "healthy ranks fall at most 0.025 below their peers (healthy_spread.py); a lost cache fell 0.5 to 1. Below the least of any rank in"
        " two minutes of past, agents' new conversations fall by up to 0.29 (96 windows of 30 s), a lost cache 0.31 to 0.97 elsewhere",
    ),
    "swing": Threshold(
        2.9,
        "x the root of the peers' requests",
        "requests of healthy ranks swing by at most 2.45 in ten seconds (healthy_spread.py, rag); bursts of 12 and 20 gave 3.4 to 6.8",
    ),
    "taken": Threshold(
        0.4,
        "of the requests that came",
        "misrouted bursts of 20 were 0.52 to 1 of the whole group's swing, bursts of the traffic itself 0.03 to 0.34 (bursty)",
    ),
    "more": Threshold(
        2.5, "x the peers' prompt tokens", "equal traffic differs by up to 2.32 in ten seconds (healthy_spread.py); more is other prompts"
    ),
}
"""Limits of the rules that start from one rank's prefill, so that exactly one of them speaks."""


@dataclass(frozen=True, slots=True)
class PrefillLoad:
    """Who prefills, and what that drags the others' decoding."""

    busy: FloatArray  # (R,) share of wall time in prefill steps
    leader: int  # row
    usual: float  # its peers' median
    mean: float  # of all
    drag: float  # share of step time that the busiest rank's prefill adds to the group
    lost: Share  # share that dealing the same prefill evenly would give back
    blocks: FloatArray  # (R, B) `busy` in each block of the window
    stretch: float  # share of the leader's prefill step beyond a decode step

    def persistence(self, limit: Limits, new: float) -> float:
        """Share of the window's blocks in which the leader prefills `limit.lead` times as long as its peers, or `new` of the time more than
        the mean, at a cost of `limit.block`."""
        known = self.blocks[:, np.isfinite(self.blocks[self.leader])]
        if not known.shape[1]:
            return 0.0
        usual = sums.zeroed(lockstep.nanmedian(np.delete(known, self.leader, axis=0)))
        uneven = known[self.leader] - lockstep.nanmean(known.T)
        return float(np.mean(((known[self.leader] >= limit.lead * usual) | (uneven >= new)) & (uneven * self.stretch >= limit.block)))


@once_a_window
def prefill_load(window: Window) -> PrefillLoad | None:
    """The deal of prefill in a window; None when prefill time or the cadence was not observed."""
    busy = np.minimum(window.mean(signals.PREFILL_BUSY), 1.0)
    step_time = lockstep.cadence(window)
    if np.isfinite(busy).sum() < 2 or step_time is None:
        return None
    leader, mean = lockstep.highest(busy), lockstep.average(busy)
    usual, most = float(lockstep.peers_median(busy)[leader]), float(busy[leader])
    mid, low, high = _stretch(window, leader, most)
    lost = Share((most - mean) * mid, (most - mean) * low, (most - mean) * high)
    parts = np.minimum(blocks.means(window, signals.PREFILL_BUSY), 1.0)
    return PrefillLoad(busy, leader, usual, mean, most * mid, lost, parts, mid)


@once_a_window
def prompt_tokens(window: Window) -> tuple[FloatArray, FloatArray]:
    """(R,) share of prompt tokens found in the prefix cache, and (R,) prompt tokens per second, cached or not; NaN: unknown."""
    cached, computed = window.mean(signals.CACHED_TOKENS), window.mean(signals.PREFILL_TOKENS)
    tokens = cached + computed
    some = np.isfinite(tokens) & (tokens > lockstep.LEAST_RATE)
    return np.where(some, cached / np.where(some, tokens, 1.0), np.nan), tokens


@once_a_window
def lowest_hit(past: Window, seconds: float) -> float | None:
    """The least share of its prompt tokens that any rank found cached in stretches of at least `seconds`; None for a past too short to say,
    or if none was counted."""
    if blocks.count(past, seconds) < blocks.SPEAKS:
        return None
    cached, computed = (blocks.means(past, name, seconds) for name in (signals.CACHED_TOKENS, signals.PREFILL_TOKENS))
    tokens = cached + computed
    some = np.isfinite(tokens) & (tokens > lockstep.LEAST_RATE)
    return float((cached[some] / tokens[some]).min()) if some.any() else None


class Why(Enum):
    """Why a rank prefills: each is one rule's, so that exactly one of them speaks."""

    RETRACTED = "computes retracted requests again"
    BURST = "computes what came at once"
    UNCACHED = "computes prompts that its peers find cached"
    NEW = "computes prompts that are longer or more than its peers'"


def retracts(window: Window, row: int) -> bool:
    """Whether the rank in `row` pushes requests out of its KV pool."""
    return bool(sums.zeroed(window.mean(signals.RETRACTED))[row] > 0)


def why(window: Window, row: int, limit: Limits) -> Why:
    """Why the rank in `row` prefills: retractions first, as what they push out has lost its cache too; then requests that came at once,
    cached or not; then a lower hit ratio at no more prompt tokens than the peers'. What was not observed leaves the prompts new."""
    if retracts(window, row):
        return Why.RETRACTED
    if bursts.is_burst(bursts.burst(window, row), limit.swing, limit.taken):
        return Why.BURST
    hit, tokens = prompt_tokens(window)
    lower = hit[row] < lockstep.peers_median(hit)[row] - limit.hit
    if not lower or not tokens[row] <= limit.more * lockstep.peers_median(tokens)[row]:
        return Why.NEW
    return Why.BURST if bursts.is_crowd(window, row, limit.swing) else Why.UNCACHED  # who loses a cache holds its requests hardly longer


def _stretch(window: Window, leader: int, busy: float) -> tuple[float, float, float]:
    """Share of the leader's prefill step beyond a decode step: (mid, low, high).

    The leader's own decode moments hold only steps without its prefill: their mean is the plain decode step. The remaining steps of the
    group are its prefill steps.
    """
    rate = lockstep.group_rate(window)
    moments = window.mean(signals.DECODE_TIME)[leader], window.mean(signals.DECODE_STEPS)[leader]
    if rate is None or not np.isfinite(moments).all() or moments[1] < 0.05 * rate or moments[0] <= lockstep.LEAST_RATE:
        return 0.5, 0.0, 1.0  # it hardly decodes at all: only that the answer lies between nothing and everything is known
    plain = float(moments[0] / moments[1])
    steps = rate - (1.0 - busy) / plain  # per second
    if steps <= FEW * rate or busy <= lockstep.LEAST_RATE:
        return 0.5, 0.0, 1.0
    mid = min(1.0, max(0.0, 1.0 - plain * steps / busy))
    # prefill is booked from launch to completion, which under overlap spans up to two steps: at most twice too much, never too little
    return mid, mid / 2, mid
