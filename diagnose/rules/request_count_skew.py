"""One rank is dealt many more requests than its peers.

What it detects: attention work per decode step that is uneven because one rank runs more requests, at a cost in step time.
Why it matters: each layer ends when the rank with the most KV to read has read it; the other ranks wait with room to spare.
Not this rule: equal counts with longer contexts (`context_length_skew`); requests that pile up because their drafted tokens are refused
(`speculation_skew`); a queue that waits for the front end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from diagnose import acceptance, deal
from diagnose.confidence import confidence
from diagnose.dealt import Deal
from diagnose.model import Class, Finding, Healthy, NoData, Severity
from diagnose.rules import Limits, rule

if TYPE_CHECKING:
    from diagnose.case import Case


@rule(
    klass=Class.LOAD,
    severity=Severity.TICKET,
    remedy="Deal requests by load (--load-balance-method total_requests or total_tokens), and look for clients that pin a rank"
    " (routed_dp_rank) or sessions that stick to one.",
    needs=deal.NEEDS,
    **deal.THRESHOLDS,
)
def request_count_skew(case: Case, limit: Limits) -> Finding | Healthy | NoData:
    found = deal.uneven_deal(case, limit)
    if not isinstance(found, Deal):
        return found
    top = max(found.fuller or found.rows, key=lambda row: found.counts[row])
    if not found.fuller:
        return Healthy(
            f"the busiest rank runs {found.counts[top]:.1f} times its peers' requests, with contexts {found.lengths[top]:.1f} times as long"
        )
    if acceptance.explains(case.window, found.fuller, found.counts[top]):
        return Healthy(f"the busiest rank holds {found.counts[top]:.1f} times its peers' requests as its drafted tokens are refused")
    names = case.rank_ids(found.fuller)
    return Finding(
        ranks=names,
        share=found.part(found.fuller),
        confidence=confidence(found.share.mid, limit.share, missing=len(found.weakened_by)),
        summary=f"rank {', '.join(map(str, names))} runs {found.counts[top]:.1f} times as many requests as its peers",
        evidence=deal.evidence(case, top),
        would_tell=found.would_tell or "stop new requests to that rank for a minute: the step time must fall as they finish",
        weakened_by=found.weakened_by,
    )
