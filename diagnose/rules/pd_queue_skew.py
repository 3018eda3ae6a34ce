"""Requests are held between prefill and decode on one rank.

What it detects: a queue of the KV hand-over that holds requests on one rank of a prefill or decode server and not on its peers.
Why it matters: what waits there neither computes nor decodes; its users wait for their first token while the group has room.
Not this rule: queues that are long on all ranks, which is too little of the other half; a queue for the scheduler (`request_count_skew`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from collector import promql, signals
from diagnose import lockstep
from diagnose.confidence import confidence
from diagnose.leading import leads
from diagnose.model import Class, Evidence, Finding, Healthy, NoData, Severity, Share
from diagnose.rules import Limits, Threshold, rule

if TYPE_CHECKING:
    from diagnose.case import Case

QUEUES = {
    "prefill": (signals.BOOTSTRAP_QUEUE, signals.INFLIGHT_QUEUE),
    "decode": (signals.PREALLOC_QUEUE, signals.TRANSFER_QUEUE),
}
"""The queues that each role fills; the others stand at 0 there."""

NEEDS = (*QUEUES["prefill"], *QUEUES["decode"], signals.RUNNING, signals.WAITING)

HOLDS = {
    signals.BOOTSTRAP_QUEUE: ("that wait for the decode side", "whether the decode side has KV room, and its address reaches this rank"),
    signals.INFLIGHT_QUEUE: ("computed, with their KV still under way", "this rank's KV transfer speed against its peers'"),
    signals.PREALLOC_QUEUE: ("that wait for KV room", "this rank's KV usage, and which requests fill its pool"),
    signals.TRANSFER_QUEUE: (
        "whose KV has not arrived",
        "the KV transfer speed of the prefill ranks that send to it, and this card's network counters: its own link or theirs",
    ),
}
"""What a queue holds, and what would tell why."""

SLOWER = 0.5
"""Share of the peers' KV transfer speed below which the rank's link is the reason: equal links measured 1.00 (prefill workload, seeds 1 to
3), and a path shared by two transfers gives each a half."""


@rule(
    klass=Class.LOAD,
    severity=Severity.TICKET,
    remedy="Take that rank's link out of the hand-over: compare its NIC (--disaggregation-ib-device) and its transfer speed with a peer's,"
    " and deal fewer requests to it until the queue is gone.",
    needs=NEEDS,
    held=Threshold(
        1.0,
        "requests above the peers",
        "equal ranks exceed their peers by 0.4 at the most in 21 windows of 10 s (prefill and decode workload, seeds 1 to 4)",
    ),
    share=Threshold(
        0.02,
        "of the requests in the engine",
        "0.4 of the 64 requests of an equal decode group (seeds 1 to 4) are 0.006: three times that is no chance",
    ),
    leads=Threshold(
        0.7,
        "of intervals",
        "one of 8 equal ranks holds the most in 0.125 of the intervals; a queue that drains now and then still leads in most",
    ),
)
def pd_queue_skew(case: Case, limit: Limits) -> Finding | Healthy | NoData:
    window, role = case.window, case.window.engine.facts.role
    if role == "unified":
        return Healthy("the engine is not disaggregated: nothing is handed over between prefill and decode")
    if missing := window.missing(*NEEDS):
        return NoData(missing, "the queues between prefill and decode were not observed")
    if role not in QUEUES:
        return NoData((), "the engine does not say whether it prefills, decodes or does both, so its queues cannot be read")
    if not case.long_enough:
        return NoData((), "the window is too short to show that a queue persists")
    total = _requests(case)
    queue, row, held, usual = max((_longest(case, name) for name in QUEUES[role]), key=lambda found: found[2] - found[3])
    rank, more = window.ranks[row], held - usual
    share = min(1.0, more / total) if total > 0 else 0.0
    if more < limit.held or share < limit.share:
        return Healthy(f"no rank of this {role} server holds more than {max(more, 0.0):.1f} requests above its peers in the hand-over")
    steady = leads(window.get(queue), row)
    if steady < limit.leads:
        return Healthy(f"rank {rank} holds {held:.1f} requests {HOLDS[queue][0]}, but only in {steady:.0%} of the time more than its peers")
    slow = _link(case, row)
    what, tell = HOLDS[queue]
    return Finding(
        ranks=(rank,),
        share=Share(share, 0.0, share),
        confidence=confidence(share, limit.share, agreement=steady),
        summary=f"rank {rank} holds {held:.1f} requests {what}, its peers {usual:.1f}: {share:.0%} of all requests in the engine"
        + ("; its KV link is slow" if slow else ""),
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
    )


def _longest(case: Case, queue: str) -> tuple[str, int, float, float]:
    """The queue, the row on which it stands highest above the peers' median, its mean length there and theirs."""
    length = case.window.mean(queue)
    usual = np.nan_to_num(lockstep.peers_median(length))
    row = int(np.nanargmax(length - usual))
    return queue, row, float(length[row]), float(usual[row])


def _requests(case: Case) -> float:
    """Requests in the engine: SGLang counts the queues of the hand-over as waiting, but for what is in flight."""
    return float(sum(np.nansum(case.window.mean(name)) for name in (signals.RUNNING, signals.WAITING, signals.INFLIGHT_QUEUE)))


def _link(case: Case, row: int) -> tuple[Evidence, ...]:
    """The rank's transfer speed if it is far below its peers'. Only a prefill server measures it; 0 is no transfer yet."""
    speed = case.window.mean(signals.TRANSFER_SPEED)
    usual = float(lockstep.peers_median(np.where(speed > 0, speed, np.nan))[row])
    if not (speed[row] > 0 and speed[row] < SLOWER * usual):
        return ()
    return (
        Evidence(
            signal=signals.TRANSFER_SPEED,
            what=f"its last KV transfers ran at {speed[row] / 1e9:.2f} GB/s, its peers' at {usual / 1e9:.2f} GB/s",
            observed=float(speed[row]),
            expected=usual,
            unit="B/s",
            rank=case.window.ranks[row],
            threshold=SLOWER * usual,
            promql=promql.TRANSFER_SPEED,
        ),
    )
