"""One rank computes prompts that its peers find in their caches.

What it detects: a prefix hit ratio far below the peers' on the rank that prefills most, at no more prompt tokens than theirs.
Why it matters: conversations dealt away from the rank that holds their prefix are prefilled anew, at everybody's pace.
Not this rule: prompts that are longer or more than the peers' (`long_prefill`); prompts computed again after a retraction (`kv_pressure`);
requests that come at once (`burst_misrouted`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from collector import promql, signals
from collector.model import Clock
from diagnose import lockstep, lone_prefill, own_prefill, sums
from diagnose.confidence import confidence
from diagnose.model import Class, Evidence, Finding, Healthy, NoData, Severity
from diagnose.prefill import THRESHOLDS, Why, lowest_hit, prompt_tokens
from diagnose.rules import Limits, rule

if TYPE_CHECKING:
    from diagnose.case import Case


@rule(
    klass=Class.LOAD,
    severity=Severity.TICKET,
    remedy="Send a conversation's next turn to the rank that served the last one (a cache-aware router, or routed_dp_rank per session),"
    " and see whether that rank's cache was flushed.",
    needs=(signals.PREFILL_BUSY, signals.CACHED_TOKENS, signals.PREFILL_TOKENS),
    **THRESHOLDS,
)
def prefix_cache_skew(case: Case, limit: Limits) -> Finding | Healthy | NoData:
    if case.window.engine.clock is Clock.NONE:
        return own_prefill.answer(case, limit, Why.UNCACHED)
    found = lone_prefill.lone_prefill(case, limit)
    if not isinstance(found, lone_prefill.LonePrefill):
        return found
    if missing := case.window.missing(signals.CACHED_TOKENS, signals.PREFILL_TOKENS):
        return NoData(missing, "one rank prefills most, but whether its prompts were in a cache was not counted")
    row, load, weakened = found.row, found.load, found.weakened_by
    hit, tokens = prompt_tokens(case.window)
    peers = lockstep.peers_median(hit)
    if found.reason is Why.NEW:
        return Healthy(f"the rank that prefills most finds {hit[row]:.0%} of its prompts cached, its peers {peers[row]:.0%}")
    if found.reason is not Why.UNCACHED:
        return Healthy(f"the rank that prefills most {found.reason.value}")
    lowest = None if case.baseline is None else lowest_hit(case.baseline, case.window.end - case.window.start)
    # prompts that no rank of the past found so seldom cached are news, however unevenly prompts fall by themselves
    news = lowest is not None and hit[row] < lowest - limit.hit and found.persistence >= limit.some
    if not news and (calm := found.passing(limit)) is not None:
        return calm
    rank = case.window.ranks[row]
    return Finding(
        ranks=(rank,),
        share=load.lost,
        confidence=confidence(load.lost.mid, limit.share, agreement=found.persistence, missing=len(weakened)),
        summary=f"rank {rank} finds {hit[row]:.0%} of its prompt tokens cached, its peers {peers[row]:.0%}: it computes what they look up",
        evidence=(
            Evidence(
                signal=signals.CACHED_TOKENS,
                what=f"of {sums.zeroed(tokens)[row]:,.0f} prompt tokens per second rank {rank} has {hit[row]:.0%} cached,"
                f" its peers {peers[row]:.0%}",
                observed=float(hit[row]),
                expected=float(peers[row]),
                unit="ratio",
                rank=rank,
                threshold=float(peers[row]) - limit.hit,
                promql=promql.HIT_RATIO,
            ),
        ),
        would_tell="which rank served the same conversations before",
        weakened_by=weakened,
        severity=found.severity,
    )
