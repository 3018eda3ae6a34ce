"""A rank's load snapshots have stopped while the rank itself goes on.

What it detects: snapshots that stop advancing on some ranks although steps are still counted on them.
Why it matters: a router that balances by load goes on dealing by what that rank had when its snapshots stopped.
Not this rule: a rank that has stopped itself (`stuck_rank`); loads that are fresh but dealt badly (`request_count_skew`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from collector import signals
from diagnose import blocks, freshness, lockstep, sums
from diagnose.model import Class, Evidence, Finding, Healthy, NoData, Severity, Share
from diagnose.rules import Limits, Threshold, rule

if TYPE_CHECKING:
    from collector.model import Window
    from diagnose.case import Case


_FRESH = "no rank's load snapshots have stopped while it steps"


@rule(
    klass=Class.LOAD,
    severity=Severity.TICKET,
    remedy="Until that rank's snapshots advance again, balance without them (--load-balance-method round_robin); look in its"
    " scheduler's log, and restart the engine when traffic allows.",
    needs=(signals.SNAPSHOT_AGE, signals.STEPS_ACTIVE),
    steps=Threshold(
        25.0,
        "of the group's steps",
        "a rank publishes every 15 results: with prompts in every step of 0.4 s that is 6 s, and healthy ranks were blamed for it",
    ),
    **freshness.THRESHOLDS,
)
def stale_ledger(case: Case, limit: Limits) -> Finding | Healthy | NoData:
    window = case.window
    if missing := window.missing(signals.SNAPSHOT_AGE, signals.STEPS_ACTIVE):
        return NoData(missing, "whether snapshots keep up with the steps was not observed")
    age = freshness.last(window.get(signals.SNAPSHOT_AGE))
    if not (age > limit.age).any():
        return Healthy(_FRESH)
    least = max(limit.age, limit.steps / _slowest(window))
    stale = np.isfinite(age) & (age > least) & (freshness.stepping(window, age) > limit.stood)
    if not stale.any():
        return Healthy(_FRESH)
    rows = tuple(int(k) for k in np.flatnonzero(stale))
    names = case.rank_ids(rows)
    oldest = float(age[list(rows)].max())
    return Finding(
        ranks=names,
        share=Share(0.0, 0.0, 0.0),
        confidence=0.9 if oldest > 2 * least else 0.7,
        summary=f"rank {', '.join(map(str, names))} steps on, but last published its load {oldest:.0f} s ago: routers deal by old figures",
        evidence=tuple(
            Evidence(
                signal=signals.SNAPSHOT_AGE,
                what=f"rank {window.ranks[k]} last published its load {age[k]:.1f} s ago and goes on stepping",
                observed=float(age[k]),
                expected=None,
                unit="s",
                rank=window.ranks[k],
                threshold=least,
            )
            for k in rows[:8]
        ),
        would_tell="requests dealt to that rank against its peers: with load-aware routing they drift apart",
    )


def _slowest(window: Window) -> float:
    """Steps per second of the group in the slowest of the window's blocks in which it stepped; infinite without steps: prompts and faults
    come and go within a window, and a snapshot spans the steps of its own time."""
    steps = blocks.means(window, signals.STEPS_ACTIVE) + sums.zeroed(blocks.means(window, signals.STEPS_IDLE))
    rates = lockstep.nanmedian(steps)
    return float(np.min(rates, where=sums.zeroed(rates) > lockstep.LEAST_RATE, initial=np.inf))
