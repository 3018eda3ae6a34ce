"""A rank has stopped with work pending.

What it detects: load snapshots that stop advancing while requests run or wait.
Why it matters: in a lockstep one stopped rank stops all; health checks may go on answering 200.
Not this rule: an idle engine (its snapshots go on); an unreachable server; long steps.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from collector import signals
from collector.model import FloatArray
from diagnose.model import Class, Evidence, Finding, Healthy, NoData, Severity, Share
from diagnose.rules import Limits, Threshold, rule

if TYPE_CHECKING:
    from diagnose.case import Case


@rule(
    klass=Class.SINGLE_POINT,
    severity=Severity.PAGE,
    remedy="Take stacks of all schedulers now (py-spy dump --pid PID on each): the one not waiting in a collective is the one. Then restart"
    " the engine; --soft-watchdog-timeout 60 writes these stacks by itself next time.",
    needs=(signals.SNAPSHOT_AGE, signals.RUNNING),
    age=Threshold(
        5.0,
        "s",
        "healthy snapshots are at most 0.6 s old (15 steps of 40 ms); garbage collections of 7 s and more are reported and are stalls too",
    ),
)
def stuck_rank(case: Case, limit: Limits) -> Finding | Healthy | NoData:
    if missing := case.window.missing(signals.SNAPSHOT_AGE, signals.RUNNING):
        if _still_stepping(case):
            return Healthy("steps were counted to the end of the window")
        return NoData(missing, "whether the ranks still make progress was not observed")
    age = _last(case.window.get(signals.SNAPSHOT_AGE))
    work = np.nan_to_num(_last(case.window.get(signals.RUNNING))) + np.nan_to_num(_last(case.window.get(signals.WAITING)))
    stale = np.isfinite(age) & (age > limit.age)
    if not stale.any():
        return Healthy(f"every rank published its load within the last {np.nanmax(age):.1f} s")
    if not (stale & (work > 0)).any():
        return Healthy("the ranks whose snapshots are old have no work")
    everyone = bool(stale[np.isfinite(age)].all())
    if everyone and _still_stepping(case):
        return NoData((), "the load snapshots are old but steps go on: the snapshots are broken, not the ranks")
    rows = tuple(int(k) for k in np.flatnonzero(stale & (work > 0)))
    names = () if everyone and len(case.window.ranks) > 1 else case.rank_ids(rows)
    frozen = float(np.nanmin(age[stale]))
    length = case.window.end - case.window.start
    share = min(1.0, frozen / length)
    who = f"rank {', '.join(map(str, names))}" if names else "the whole group"
    return Finding(
        ranks=names,
        share=Share(share, share, 1.0),
        confidence=0.9 if frozen > 2 * limit.age else 0.7,
        summary=f"{who} has made no progress for {frozen:.0f} s with {np.sum(work):.0f} requests pending"
        + ("" if names else "; all ranks wait for the one that stopped, and no metric says which"),
        evidence=tuple(
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
        would_tell="" if names else "a stack of every scheduler (py-spy dump), or each process' state in /proc/PID/status",
    )


def _last(values: FloatArray) -> FloatArray:
    """(R,) the newest observed value of each row; NaN when there is none."""
    seen = np.isfinite(values)
    newest = values.shape[1] - 1 - np.argmax(seen[:, ::-1], axis=1)
    return np.where(seen.any(axis=1), values[np.arange(len(values)), newest], np.nan)


def _still_stepping(case: Case) -> bool:
    """Whether steps were counted in the newest quarter of the window."""
    steps = np.nan_to_num(case.window.get(signals.STEPS_ACTIVE) + case.window.get(signals.STEPS_IDLE))
    return bool(steps[:, -max(1, steps.shape[1] // 4) :].sum() > 0)
