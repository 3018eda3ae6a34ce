"""One rank's scheduler process has a slow mode that comes and goes.

What it detects: a rank that persistently arrives last at the host exchanges and is busy, with a lateness that changes between two lengths
while its load does not.
Why it matters: a process in such a state stays in it until it is restarted, and no repair of cards or routing touches it.
Not this rule: a steady extra cost in every step (`slow_rank`); a process that is kept from running (`host_cpu_starved`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from collector import promql, signals
from diagnose import late_host
from diagnose.confidence import confidence
from diagnose.model import Class, Evidence, Finding, Healthy, NoData, Severity
from diagnose.rules import rule

if TYPE_CHECKING:
    from diagnose.case import Case
    from diagnose.rules import Limits


@rule(
    klass=Class.SINGLE_POINT,
    severity=Severity.PAGE,
    remedy="Keep a stack and a memory profile of that scheduler (py-spy dump --pid PID, twice in each mode), then restart the process;"
    " the slow mode must be gone after it, with the same card and core.",
    needs=(*late_host.NEEDS, signals.SCHEDULER_CPU),
    **late_host.THRESHOLDS,
)
def slow_process(case: Case, limit: Limits) -> Finding | Healthy | NoData:
    found = late_host.late_host(case, limit)
    if not isinstance(found, late_host.LateHost):
        return found
    if found.several:
        return Healthy("several ranks are late together, which is no single process' doing")
    if found.cpu_ratio is None:
        return NoData((signals.SCHEDULER_CPU,), "a rank is late, but without its CPU time stolen time and more work look the same")
    if found.cpu_ratio <= limit.busy:
        return Healthy(f"the late rank uses {found.cpu_ratio:.1f} times its peers' CPU: it is kept from running, not busy")
    if not found.named or found.swing is None or not found.swing.bimodal(limit):
        return Healthy("the rank is late by the same in all parts of the window" if found.swing else "how its lateness goes was not seen")
    rank, swing = case.window.ranks[found.rows[0]], found.swing
    return Finding(
        ranks=(rank,),
        share=found.share,
        confidence=confidence(found.share.mid, limit.share, agreement=found.agreement, missing=len(found.weakened_by)),
        summary=f"rank {rank} is late at the host exchanges by {swing.low * 1e3:.0f} to {swing.high * 1e3:.0f} ms in turn, at"
        f" {found.cpu_ratio:.1f} times its peers' CPU: its process has a slow mode",
        evidence=(
            *found.evidence,
            Evidence(
                signal="lateness",
                what=f"its lateness goes between {swing.low * 1e3:.1f} and {swing.high * 1e3:.1f} ms per step",
                observed=swing.low,
                expected=swing.high,
                unit="s/step",
                rank=rank,
                threshold=(1.0 - limit.swing) * swing.high,
                promql=promql.WAIT_PER_STEP,
            ),
            late_host.cpu_evidence(case, found),
        ),
        would_tell=found.would_tell
        or "its state across a restart: start time and fault counts in /proc/PID/stat, and a py-spy dump in each mode",
        weakened_by=found.weakened_by,
        severity=late_host.severity(found.share, limit),
    )
