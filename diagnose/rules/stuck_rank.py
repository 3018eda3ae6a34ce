"""A rank has stopped with work pending.

What it detects: load snapshots that stop advancing while requests run or wait; on vLLM, which has none, counters that stand still.
Why it matters: in a lockstep one stopped rank stops all; health checks may go on answering 200.
Not this rule: a rank that steps on while its snapshots stand (`stale_ledger`); an idle engine (its snapshots go on).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from collector import signals
from collector.model import Clock
from diagnose import freshness, progress, starvation, sums
from diagnose.model import Class, Evidence, Finding, Healthy, NoData, Severity, Share
from diagnose.rules import Limits, rule

if TYPE_CHECKING:
    from diagnose.case import Case


@rule(
    klass=Class.SINGLE_POINT,
    severity=Severity.PAGE,
    remedy="Take stacks of all schedulers now (py-spy dump --pid PID on each): the one not waiting in a collective is the one. Then restart"
    " the engine; --soft-watchdog-timeout 60 writes these stacks by itself next time.",
    needs=(signals.SNAPSHOT_AGE, signals.RUNNING),
    **freshness.THRESHOLDS,
)
def stuck_rank(case: Case, limit: Limits) -> Finding | Healthy | NoData:
    if case.window.engine.clock is not Clock.EXCHANGE:  # no load snapshots there
        return progress.stuck(case)
    if missing := case.window.missing(signals.SNAPSHOT_AGE, signals.RUNNING):
        if (sums.zeroed(freshness.stepping(case.window, np.zeros(len(case.window.ranks)))) > 0).any():
            return Healthy("steps were counted to the end of the window")
        return NoData(missing, "whether the ranks still make progress was not observed")
    age = freshness.last(case.window.get(signals.SNAPSHOT_AGE))
    old = np.isfinite(age) & (age > limit.age)
    if not old.any():
        return Healthy(f"every rank published its load within the last {np.nanmax(age):.1f} s")
    stale = old & ~(freshness.stepping(case.window, age) > limit.stood)
    if not stale.any():
        return Healthy("the ranks whose snapshots are old go on stepping")
    work = sums.zeroed(freshness.last(case.window.get(signals.RUNNING))) + sums.zeroed(freshness.last(case.window.get(signals.WAITING)))
    if not (stale & (work > 0)).any():
        return Healthy("the ranks whose snapshots are old have no work")
    everyone = bool(stale[np.isfinite(age)].all())
    if not everyone and (missing := case.window.missing(signals.STEPS_ACTIVE, signals.STEPS_IDLE)):
        return NoData(missing, "some snapshots stand while others advance: without step counts a stopped rank looks the same")
    rows = tuple(int(k) for k in np.flatnonzero(stale & (work > 0)))
    stopped = starvation.stopped(case, rows)
    blamed = tuple(stopped) or (() if everyone and len(case.window.ranks) > 1 else rows)
    names = case.rank_ids(blamed)
    frozen = float(np.nanmin(age[stale]))
    length = case.window.end - case.window.start
    share = min(1.0, frozen / length)
    who = f"rank {', '.join(map(str, names))}" if names else "the whole group"
    return Finding(
        ranks=names,
        share=Share(share, share, 1.0),
        confidence=0.9 if frozen > 2 * limit.age else 0.7,
        summary=f"{who} has made no progress for {frozen:.0f} s with {np.sum(work):.0f} requests pending"
        + ("; its process is stopped by a signal (state T), and all others wait for it" if stopped else "")
        + ("" if names else "; all ranks wait for the one that stopped, and no metric says which"),
        evidence=tuple(found.evidence for found in stopped.values())
        + tuple(
            Evidence(
                signal=signals.SNAPSHOT_AGE,
                what=f"rank {case.window.ranks[k]} last published its load {age[k]:.1f} s ago with {work[k]:.0f} requests",
                observed=float(age[k]),
                expected=None,
                unit="s",
                rank=case.window.ranks[k],
                threshold=limit.age,
            )
            for k in rows[:8]
        ),
        would_tell="" if names else "a stack of every scheduler (py-spy dump), or each process' state (--procfs on its node)",
    )
