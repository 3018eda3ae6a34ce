"""One rank prefills while its peers decode: what the rules on a single rank's prefill start from, so that one of them speaks. Pure."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from collector import signals
from collector.model import Window, once_a_window
from diagnose import blocks, lockstep, prefill
from diagnose.case import Case
from diagnose.model import Healthy, NoData, Severity
from diagnose.rules import Limits

NEEDS = (signals.PREFILL_BUSY, signals.DECODE_STEPS)

CONFIRMS = (
    signals.STEPS_ACTIVE,
    signals.DECODE_STEPS,
    signals.PREFILL_TOKENS,
    signals.CACHED_TOKENS,
    signals.RETRACTED,
    signals.RUNNING,
    signals.WAITING,
)
"""What tells the reasons of prefill apart and prices it: without one of them a finding is less sure."""

BRIEF_S = 20.0
"""Seconds of a window without a past below which a rank that prefills alone is only noted: with coding agents one rank can prefill for as
long, and ten-second windows show it in 0.17 of all cases (benchmarks/healthy_spread.py)."""


@dataclass(frozen=True, slots=True)
class LonePrefill:
    """The rank that prefills far more than its peers at a cost to all, and why."""

    row: int
    busy: float  # share of its time in prefill steps
    usual: float  # its peers' median
    load: prefill.PrefillLoad
    reason: prefill.Why
    persistence: float  # share of the window's blocks in which it leads
    usual_uneven: float | None  # the most that one rank prefilled above the mean in a stretch of the past as long as the window
    worst_uneven: float  # the same in a block of the past, a third of such a stretch; 0 without a past
    grown: float  # by how much chance moves these more now, as more prompts come to all
    brief: bool  # neither a past nor a long window shows that this is not how the traffic is
    weakened_by: tuple[str, ...]

    def passing(self, limit: Limits) -> Healthy | None:
        """That these are a few long prompts, as in any traffic, and next another rank's, if so: it leads in too few blocks, or the past
        had the like of it, be it in one block."""
        worst = self.worst_uneven * self.grown
        if self.usual_uneven is not None and self.uneven < limit.worst * worst:
            return Healthy(
                f"one rank prefills {self.uneven:.0%} of the time more than the mean; for a few seconds of the past it was {worst:.0%}"
            )
        new = self.usual_uneven is not None
        if self.persistence < (limit.some if new else limit.agreement):
            return Healthy(
                f"the rank that prefills most leads in {self.persistence:.0%} of the window's parts: a few prompts, no lasting deal"
            )
        return self.as_before(limit, self.grown)

    def as_before(self, limit: Limits, grown: float = 1.0) -> Healthy | None:
        """That the past had the like of it, if so, were its chance `grown` times as large."""
        if self.usual_uneven is None or self.uneven >= limit.usual * self.usual_uneven * grown:
            return None
        was = self.usual_uneven * grown
        return Healthy(f"one rank prefills {self.uneven:.0%} of the time more than the mean; in the past it was {was:.0%}")

    @property
    def uneven(self) -> float:
        """Share of time that the rank prefills above the mean of all."""
        return self.busy - float(np.nanmean(self.load.busy))

    @property
    def severity(self) -> Severity | None:
        """NOTE where it cannot be told from traffic with long prompts, which is on another rank next."""
        return Severity.NOTE if self.brief else None


def lone_prefill(case: Case, limit: Limits) -> LonePrefill | Healthy | NoData:
    """The prefilling rank of a case by the limits of prefill.THRESHOLDS, or why there is none, or what is missing."""
    load = case.prefill_load
    if load is None:
        return NoData(case.window.missing(*NEEDS), "prefill time was not observed")
    if not case.long_enough:
        return NoData((), "the window is too short to show that prefill persists on one rank")
    row = load.leader
    busy, usual, past = float(load.busy[row]), load.usual, case.baseline
    calm = f"the rank that prefills most spends {busy:.0%} of its time on it, its peers {usual:.0%}"
    if load.lost.mid < limit.share:
        return Healthy(calm)
    before = None if past is None else _most_uneven(past, case.window.end - case.window.start)
    # where all ranks prefill much, none can prefill several times as long as its peers: then the past is the measure
    new = float("inf") if before is None else limit.usual * before
    uneven = busy - load.mean
    alone = busy >= limit.lead * usual or (busy >= limit.ahead * usual and uneven >= new)
    if before is not None:
        alone = alone or (busy >= limit.beyond * usual and uneven >= limit.far * before)
    if not alone:
        return Healthy(calm)
    reason = prefill.why(case.window, row, limit)
    brief = case.baseline is None and case.window.end - case.window.start < BRIEF_S
    worst = 0.0 if past is None else _most_uneven(past, lockstep.BLOCK_S) or 0.0
    return LonePrefill(
        row, busy, usual, load, reason, load.persistence(limit, new), before, worst, _grown(case), brief, case.window.missing(*CONFIRMS)
    )


def apart(case: Case) -> float:
    """How many times as far the busiest rank prefills above the mean as any did in a stretch of the past as long; 0 without a past, and
    where levelling it would give back too little to be blamed."""
    load, past = case.prefill_load, case.baseline
    before = None if past is None else _most_uneven(past, case.window.end - case.window.start)
    if load is None or before is None or load.lost.mid < prefill.THRESHOLDS["share"].value:
        return 0.0
    return (float(load.busy[load.leader]) - lockstep.average(load.busy)) / max(before, lockstep.LEAST_RATE)


@once_a_window
def _most_uneven(past: Window, seconds: float) -> float | None:
    """The most uneven prefill of a past in stretches of at least `seconds`; None where none was observed."""
    busy = blocks.means(past, signals.PREFILL_BUSY, seconds)
    seen = busy[:, np.isfinite(busy).any(axis=0)]
    return float((np.nanmax(seen, axis=0) - lockstep.nanmean(seen.T)).max()) if seen.size else None


def _grown(case: Case) -> float:
    """The root of the median rank's prompt tokens over the past's, at least 1: chance moves what comes by its root."""
    past = case.baseline
    if past is None:
        return 1.0
    now, before = (lockstep.median(window.mean(signals.PREFILL_TOKENS)) for window in (case.window, past))
    return max(1.0, float(np.sqrt(now / before))) if now > 0 and before > 0 else 1.0
