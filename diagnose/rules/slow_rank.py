"""One rank's host side is slower than its peers', window after window.

What it detects: a rank that persistently arrives last at the host exchanges and is busy, or whose CPU time is not observed.
Why it matters: the exchange ends when the last scheduler arrives; one slow rank sets everybody's clock.
Not this rule: a late rank that is kept from running (`host_cpu_starved`); lateness that comes and goes
(`slow_process`); lateness that follows load (`request_count_skew`).
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
    remedy="Take a stack of the rank's scheduler (py-spy dump --pid PID) a few times: garbage collection, grammar or tokenising shows"
    " at once. Then restart that process and measure again before replacing anything.",
    needs=late_host.NEEDS,
    **late_host.THRESHOLDS,
)
def slow_rank(case: Case, limit: Limits) -> Finding | Healthy | NoData:
    found = late_host.late_host(case, limit)
    if not isinstance(found, late_host.LateHost):
        return found
    if found.several:
        return Healthy("several ranks are late together, which is no single rank's doing")
    ratio = found.cpu_ratio
    if ratio is not None and ratio <= limit.busy:
        return Healthy(f"the late rank uses {ratio:.1f} times its peers' CPU: it is kept from running, not busy")
    if ratio is not None and found.named and found.swing is not None and found.swing.bimodal(limit):
        return Healthy("the late rank's lateness comes and goes: it is a mode of its process, not a cost in every step")
    names = case.rank_ids(found.rows)
    who = f"rank {', '.join(map(str, names))}" if found.named else f"one of ranks {', '.join(map(str, names))}"
    return Finding(
        ranks=names if found.named else (),
        share=found.share,
        confidence=confidence(found.share.mid, limit.share, agreement=found.agreement, missing=len(found.weakened_by) + (not found.named)),
        summary=f"{who} is late at every host exchange" + ("" if ratio is None else f" and uses {ratio:.1f} times its peers' CPU"),
        evidence=(*found.evidence, *(() if ratio is None else (late_host.cpu_evidence(case, found),))),
        would_tell=found.would_tell or "py-spy dump of that rank's scheduler: what it does while the others wait",
        weakened_by=found.weakened_by,
    )
