"""One rank's scheduler process does not get the CPU it needs.

What it detects: a rank that persistently arrives last at the host exchanges while its scheduler uses no more CPU than its peers'.
Why it matters: the exchange ends when the last scheduler arrives; CPU stolen from one process is taken from every rank's step.
Not this rule: a late rank whose scheduler is busy (`slow_rank`); lateness inside the forward (`context_length_skew`, `expert_hotspot`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from collector import signals
from diagnose import late_host, starvation
from diagnose.confidence import confidence
from diagnose.model import Class, Finding, Healthy, NoData, Severity
from diagnose.rules import Limits, rule

if TYPE_CHECKING:
    from diagnose.case import Case


@rule(
    klass=Class.SINGLE_POINT,
    severity=Severity.PAGE,
    remedy="On the rank's node look for what shares its cores (top, /proc/PID/schedstat, cgroup cpu.stat), pin the scheduler"
    " to cores of its own (--numa-node, taskset), and measure again before touching the card.",
    needs=(*late_host.NEEDS, signals.SCHEDULER_CPU),
    **late_host.THRESHOLDS,
)
def host_cpu_starved(case: Case, limit: Limits) -> Finding | Healthy | NoData:
    found = late_host.late_host(case, limit)
    if not isinstance(found, late_host.LateHost):
        return found
    if found.several:
        return Healthy("several ranks are late together, which is no single rank's doing")
    if found.cpu_ratio is None:
        return NoData((signals.SCHEDULER_CPU,), "a rank is late, but without its CPU time stolen time and more work look the same")
    if found.cpu_ratio > limit.busy:
        return Healthy(f"the late rank uses {found.cpu_ratio:.1f} times its peers' CPU: it works, it is not starved")
    names = case.rank_ids(found.rows)
    row = found.rows[0]
    cause = starvation.cause(case, row) if found.named else None
    why = f"its process {cause.words}" if cause else "its process is not being run"
    if cause is None and starvation.looked(case, row):
        tell = (
            "a stack of that process (py-spy dump --pid PID): the kernel says that it neither waits for a CPU nor is stopped or throttled"
        )
    else:
        tell = "run-queue delay of that process (--procfs on its node, or the second field of /proc/PID/schedstat) against a peer's"
    return Finding(
        ranks=names if found.named else (),
        share=found.share,
        confidence=confidence(found.share.mid, limit.share, agreement=found.agreement, missing=len(found.weakened_by) + (not found.named)),
        summary=f"rank {', '.join(map(str, names))} is late at every host exchange without using more CPU: {why}",
        evidence=(*found.evidence, late_host.cpu_evidence(case, found), *((cause.evidence,) if cause else ())),
        would_tell=found.would_tell or ("" if cause else tell),
        weakened_by=found.weakened_by,
    )
