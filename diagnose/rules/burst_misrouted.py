"""Bursts of requests land on one rank.

What it detects: requests on one rank that jump far above the peers' and fall back, while that rank prefills most, at a cost to all.
Why it matters: the burst is prefilled there one chunk after the other, everybody decodes at that pace, and the peers had room for it.
Not this rule: more requests that stay (`request_count_skew`); long prompts one after another (`long_prefill`); requests that are pushed
out and come again (`kv_pressure`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from collector import promql, signals
from diagnose import bursts, lone_prefill
from diagnose.confidence import confidence
from diagnose.model import Class, Evidence, Finding, Healthy, NoData, Severity
from diagnose.prefill import THRESHOLDS, Why
from diagnose.rules import rule

if TYPE_CHECKING:
    from diagnose.case import Case
    from diagnose.rules import Limits


@rule(
    klass=Class.LOAD,
    severity=Severity.TICKET,
    remedy="Deal by what was sent, not by load reports that are older than the burst: --load-balance-method round_robin, or"
    " total_requests with the budget's own counting; where clients pin a rank (routed_dp_rank) or a gateway keeps sessions, spread the job"
    " that sends the burst.",
    needs=(*lone_prefill.NEEDS, signals.RUNNING, signals.WAITING),
    **THRESHOLDS,
)
def burst_misrouted(case: Case, limit: Limits) -> Finding | Healthy | NoData:
    found = lone_prefill.lone_prefill(case, limit)
    if not isinstance(found, lone_prefill.LonePrefill):
        return found
    if missing := case.window.missing(signals.RUNNING, signals.WAITING):
        return NoData(missing, "one rank prefills most, but whether its requests came at once was not counted")
    came = bursts.burst(case.window, found.row)
    if found.reason is not Why.BURST or came is None:
        swing = "an unknown number of" if came is None else f"{came.swing:.0f}"
        return Healthy(f"the rank that prefills most {found.reason.value}; its requests swing by {swing} against its peers'")
    # requests that come at once are seen by their number: how uneven the past's prefill was says nothing against it, its own bursts do
    past, calm = case.baseline, found.as_before(limit)
    if calm is not None and past is not None and bursts.on_any(past, limit.swing, limit.taken):
        return calm
    rank = case.window.ranks[found.row]
    return Finding(
        ranks=(rank,),
        share=found.load.lost,
        confidence=confidence(found.load.lost.mid, limit.share, missing=len(found.weakened_by)),
        summary=_summary(rank, came, seen=bursts.is_burst(came, limit.swing, limit.taken)),
        evidence=(
            Evidence(
                signal=signals.RUNNING,
                what=f"requests of rank {rank} swing by {came.swing:.0f} against its peers', chance moves such counts by {came.chance:.0f}",
                observed=came.peak,
                expected=came.peers,
                unit="requests",
                rank=rank,
                threshold=came.peers + limit.swing * came.chance,
                promql=promql.RUNNING,
            ),
            Evidence(
                signal=signals.PREFILL_BUSY,
                what=f"rank {rank} is in prefill steps {found.busy:.0%} of the time, its peers {found.usual:.0%}",
                observed=found.busy,
                expected=found.usual,
                unit="s/s",
                rank=rank,
                threshold=limit.lead * found.usual,
                promql=promql.PREFILL_TOKENS,
            ),
        ),
        would_tell="the router's log at the moment of a jump: which load reports it dealt by, and how old they were",
        weakened_by=found.weakened_by,
        severity=found.severity,
    )


def _summary(rank: int, came: bursts.Burst, *, seen: bool) -> str:
    holds = f"it holds up to {came.peak:.0f}, its peers {came.peers:.0f} then"
    if seen:
        return f"requests come to rank {rank} at once: {holds}, and falls back"
    return f"requests with prompts that nobody has cached come to rank {rank}: {holds}; pages too far apart to see if they come at once"
