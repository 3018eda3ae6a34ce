"""Several ranks are late together: what they share, a node or its cores, is slow.

What it detects: a minority of ranks that all arrive late at the host exchanges, the last of them changing.
Why it matters: every step waits for whichever of them is last; averages per rank look alike, and none of them is the cause.
Not this rule: one rank that is always last (`host_cpu_starved`, `slow_rank`); most ranks late, where no minority stands apart.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from diagnose import late_host
from diagnose.confidence import confidence
from diagnose.model import Class, Finding, Healthy, NoData, Severity
from diagnose.rules import Limits, rule

if TYPE_CHECKING:
    from diagnose.case import Case


@rule(
    klass=Class.SINGLE_POINT,
    severity=Severity.PAGE,
    remedy="See what these ranks share: a node, a NUMA domain, a CPU quota. Bind each scheduler to cores of its own near its card"
    " (--numa-node), or move the engine off that node; do not replace cards.",
    needs=late_host.NEEDS,
    **late_host.THRESHOLDS,
)
def slow_node(case: Case, limit: Limits) -> Finding | Healthy | NoData:
    found = late_host.late_host(case, limit)
    if not isinstance(found, late_host.LateHost):
        return found
    if not found.several:
        return Healthy("one rank alone is late")
    names = case.rank_ids(found.rows)
    share = case.host_dry or found.share  # what all late ranks cost together, not only what the last one does more than the others
    half = len(names) * 2 == len(case.window.ranks)
    return Finding(
        ranks=names,
        share=share,
        confidence=confidence(share.mid, limit.share, agreement=found.agreement, missing=len(found.weakened_by) + half),
        summary=f"ranks {', '.join(map(str, names))} are late together at the host exchanges: what they share is slow",
        evidence=found.evidence,
        would_tell="whether these ranks are one node's or one NUMA domain's, and that node's CPU pressure (/proc/pressure/cpu)",
        weakened_by=found.weakened_by,
        severity=late_host.severity(share, limit),
    )
