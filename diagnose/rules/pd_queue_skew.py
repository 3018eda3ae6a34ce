"""Requests are held between prefill and decode on one rank.

What it detects: a queue of the KV hand-over that holds requests on one rank of a prefill or decode server and not on its peers.
Why it matters: what waits there neither computes nor decodes; its users wait for their first token while the group has room.
Not this rule: queues that are long on all ranks, which is too little of the other half; a queue for the scheduler (`request_count_skew`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from collector import promql, signals
from diagnose import hand_over
from diagnose.confidence import confidence
from diagnose.leading import leads
from diagnose.model import Class, Evidence, Finding, Healthy, NoData, Severity, Share
from diagnose.rules import Limits, Threshold, rule

if TYPE_CHECKING:
    from diagnose.case import Case

NEEDS = (*hand_over.QUEUES["prefill"], *hand_over.QUEUES["decode"], signals.RUNNING, signals.WAITING)


@rule(
    klass=Class.LOAD,
    severity=Severity.TICKET,
    remedy="Take that rank's link out of the hand-over: compare its NIC (--disaggregation-ib-device) and its transfer speed with a peer's,"
    " and deal fewer requests to it until the queue is gone.",
    needs=NEEDS,
    held=Threshold(
        1.0,
        "requests above the peers",
        "healthy ranks of split engines exceed their peers by at most 0.7 (healthy_spread.py --engine prefill, decode; 54 windows)",
    ),
    share=Threshold(
        0.02,
        "of the requests in the engine",
        "healthy decode ranks exceed their peers by 0.3 of 64 requests, 0.005 (healthy_spread.py --engine decode): four times that",
    ),
    backlog=Threshold(
        4.0,
        "requests on the middle rank",
        "healthy prefill ranks hold up to 0.8 in flight; a reported backlog grew from 18 to 35 in three seconds",
    ),
    leads=Threshold(
        0.7,
        "of intervals",
        "a healthy rank leads its peers in at most 0.5 of the intervals (healthy_spread.py --engine prefill, decode; 36 windows)",
    ),
)
def pd_queue_skew(case: Case, limit: Limits) -> Finding | Healthy | NoData:
    window, role = case.window, case.window.engine.facts.role
    if role == "unified":
        return Healthy("the engine is not disaggregated: nothing is handed over between prefill and decode")
    if missing := window.missing(*NEEDS):
        return NoData(missing, "the queues between prefill and decode were not observed")
    if role not in hand_over.QUEUES:
        return NoData((), "the engine does not say whether it prefills, decodes or does both, so its queues cannot be read")
    if not case.long_enough:
        return NoData((), "the window is too short to show that a queue persists")
    total = hand_over.requests(window)
    queue, row, held, usual = max(
        (hand_over.longest(window, name) for name in hand_over.QUEUES[role]), key=lambda found: found[2] - found[3]
    )
    rank, more = window.ranks[row], held - usual
    share = min(1.0, more / total) if total > 0 else 0.0
    if piled := next((why for name in hand_over.QUEUES[role] if (why := hand_over.piles_up(window, name, limit.backlog))), ""):
        return NoData((), piled)
    if np.isfinite(window.mean(queue)).sum() < 2:
        return NoData((), "the hand-over was observed on one rank only: there is no peer to compare with")
    if more < limit.held or share < limit.share:
        return Healthy(f"no rank of this {role} server holds more than {max(more, 0.0):.1f} requests above its peers in the hand-over")
    steady = leads(window.get(queue), row)
    if steady < limit.leads:
        return Healthy(
            f"rank {rank} holds {held:.1f} requests {hand_over.HOLDS[queue][0]}, but only in {steady:.0%} of the time more than its peers"
        )
    slow = hand_over.slow_link(window, row)
    what, tell = hand_over.HOLDS[queue]
    return Finding(
        ranks=(rank,),
        share=Share(share, 0.0, share),
        confidence=confidence(share, limit.share, agreement=steady),
        summary=f"rank {rank} holds {held:.1f} requests {what}, its peers {usual:.1f}" + ("; its KV link is slow" if slow else ""),
        evidence=(
            Evidence(
                signal=queue,
                what=f"rank {rank} holds {held:.1f} requests {what}, its peers {usual:.1f}; most of all ranks in {steady:.0%} of the time",
                observed=held,
                expected=usual,
                unit="requests",
                rank=rank,
                threshold=usual + limit.held,
                promql=promql.PD_QUEUES[queue],
            ),
            *slow,
        ),
        would_tell="" if slow else tell,
        share_of="the requests' time",
    )
