"""One rank's scheduler process does not get the CPU it needs.

What it detects: a rank that persistently arrives last at the host exchanges while its scheduler uses no more CPU than its peers'; or one
whose process the kernel keeps from running while the group's steps have grown.
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
        return _by_kernel(case, limit) or found
    if found.several:
        return Healthy("several ranks are late together, which is no single rank's doing")
    if found.cpu_ratio is None:
        return NoData((signals.SCHEDULER_CPU,), "a rank is late, but without its CPU time stolen time and more work look the same")
    if found.cpu_ratio > limit.busy:
        return Healthy(f"the late rank uses {found.cpu_ratio:.1f} times its peers' CPU: it works, it is not starved")
    names = case.rank_ids(found.rows)
    row = found.rows[0]
    cause = starvation.cause(case, row) if found.named else None
    share = found.share
    if found.named and row in (causes := starvation.kept(case)):  # waits that hold their own delay understate it
        share = max(share, starvation.cost(case, {row: causes[row]}), key=lambda one: one.mid)
    why = f"its process {cause.words}" if cause else "its process is not being run"
    if cause is None and starvation.looked(case, row):
        tell = (
            "a stack of that process (py-spy dump --pid PID): the kernel says that it neither waits for a CPU nor is stopped or throttled"
        )
    else:
        tell = "run-queue delay of that process (--procfs on its node, or the second field of /proc/PID/schedstat) against a peer's"
    return Finding(
        ranks=names if found.named else (),
        share=share,
        confidence=confidence(share.mid, limit.share, agreement=found.agreement, missing=len(found.weakened_by) + (not found.named)),
        summary=f"rank {', '.join(map(str, names))} is late at every host exchange without using more CPU: {why}",
        evidence=(*found.evidence, late_host.cpu_evidence(case, found), *((cause.evidence,) if cause else ())),
        would_tell=found.would_tell or ("" if cause else tell),
        weakened_by=found.weakened_by,
        severity=late_host.severity(share, limit),
    )


UNPRICED = 0.6
"""Confidence without a past: that the process is kept from running is certain, what it costs is not known. Not calibrated."""


def _by_kernel(case: Case, limit: Limits) -> Finding | None:
    """A rank that the waits do not name, and the kernel does; None when there is none, or it costs nothing."""
    causes = starvation.kept(case)
    if not causes or not case.long_enough:
        return None
    share = starvation.cost(case, causes)
    if case.excess is not None and share.mid < limit.share:
        return None
    names = case.rank_ids(tuple(causes))
    worst = max(causes.values(), key=lambda why: why.share)
    return Finding(
        ranks=names,
        share=share,
        confidence=UNPRICED if case.excess is None else confidence(share.mid, limit.share, missing=share.low <= 0.0),
        summary=f"rank {', '.join(map(str, names))} is kept from running: its process {worst.words}",
        evidence=tuple(why.evidence for why in causes.values()),
        would_tell="" if case.excess is not None else "a capture of this engine when it was healthy (--baseline): what this costs",
    )
