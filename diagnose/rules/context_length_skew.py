"""One rank holds much longer contexts than its peers.

What it detects: attention work per decode step that is uneven because of context length, at a cost in step time.
Why it matters: each layer ends when the rank with the most KV to read has read it; all others wait, at equal request counts.
Not this rule: more requests rather than longer ones (`request_count_skew`); prompts being computed now (`long_prefill`); contexts that
push requests out of a full pool (`kv_pressure`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from diagnose import deal, prefill
from diagnose.confidence import confidence
from diagnose.dealt import Deal
from diagnose.model import Class, Finding, Healthy, NoData, Severity
from diagnose.rules import Limits, rule

if TYPE_CHECKING:
    from diagnose.case import Case


@rule(
    klass=Class.LOAD,
    severity=Severity.TICKET,
    remedy="Route by tokens instead of counts (--load-balance-method total_tokens), or give long contexts a pool of their own;"
    " request counts are no help here.",
    needs=deal.NEEDS,
    **deal.THRESHOLDS,
)
def context_length_skew(case: Case, limit: Limits) -> Finding | Healthy | NoData:
    found = deal.uneven_deal(case, limit)
    if not isinstance(found, Deal):
        return found
    top = max(found.longer or found.rows, key=lambda row: found.lengths[row])
    if not found.longer:
        return Healthy(
            f"contexts on the busiest rank are {found.lengths[top]:.1f} times its peers', its request count {found.counts[top]:.1f} times"
        )
    if prefill.retracts(case.window, top):
        return Healthy("contexts on the busiest rank fill its pool until requests are pushed out of it")
    names = case.rank_ids(found.longer)
    return Finding(
        ranks=names,
        share=found.part(found.longer),
        confidence=confidence(found.share.mid, limit.share, missing=len(found.weakened_by)),
        summary=f"contexts on rank {', '.join(map(str, names))} are {found.lengths[top]:.1f} times as long as its peers'",
        evidence=deal.evidence(case, top),
        would_tell=found.would_tell or "move one long context to another rank: the step time must follow it",
        weakened_by=found.weakened_by,
    )
