"""Tokens queue on their way to one card in every layer's dispatch.

What it detects: a rank that waits longer than its node's other ranks for the same senders, with level experts, from DeepXTrace's matrix.
Why it matters: the experts of that card begin late, so every layer's combine waits for it, while its clocks and its load look healthy.
Not this rule: a rank that all others wait for, which is late itself (`slow_rank`); experts that draw more tokens (`expert_hotspot`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from collector import signals
from diagnose import dispatch
from diagnose.confidence import confidence
from diagnose.model import Class, Evidence, Finding, Healthy, NoData, Severity, Share
from diagnose.rules import Limits, Threshold, rule

if TYPE_CHECKING:
    from diagnose.case import Case

NEEDS = (signals.DISPATCH_WAIT, signals.DISPATCH_AWAITED, signals.BALANCEDNESS_SUM, signals.BALANCEDNESS_COUNT)


@rule(
    klass=Class.STRUCTURAL,
    severity=Severity.TICKET,
    remedy="Look at the network before that card (incast on its port, its NIC, adaptive routing), and let fewer nodes send to it at once:"
    " a smaller --ep-size, node-limited routing, or --moe-a2a-backend deepep in its low-latency mode.",
    needs=NEEDS,
    share=Threshold(0.05, "of step time", "unexplained differences between healthy windows reach 0.031 (healthy_spread.py)"),
    balancedness=Threshold(
        0.55,
        "mean/max",
        "healthy routing measured 0.84 to 0.87 (healthy_spread.py), a card at 3.5 fair shares 0.29: below, the card's own experts are hot",
    ),
    **dispatch.THRESHOLDS,
)
def dispatch_skew(case: Case, limit: Limits) -> Finding | Healthy | NoData:
    window = case.window
    if missing := window.missing(signals.DISPATCH_WAIT, signals.DISPATCH_AWAITED):
        return NoData(missing, "only a matrix of who waits for whom in dispatch tells a queue before a card from a slow group")
    if late := dispatch.late_senders(window, limit.ratio):
        culprits = ", ".join(map(str, case.rank_ids(late)))
        return Healthy(f"the others wait in dispatch for the tokens of rank {culprits}: it is late itself, and nothing queues before it")
    rows = dispatch.queued(window, limit.ratio)
    if not rows:
        return Healthy("no rank waits longer in dispatch than its node's others for the same senders")
    level = case.balancedness
    if level is not None and level < limit.balancedness:
        return Healthy(f"tokens reach a card late, and expert balancedness is {level:.2f}: its experts draw more tokens than the others'")
    names = case.rank_ids(rows)
    who = f"rank {', '.join(map(str, names))}"
    if case.excess is not None and case.excess.share.mid < limit.share:
        return Healthy(f"tokens reach {who} late, but the step time shows no cost: {case.excess.share.mid:.1%} unexplained")
    share, priced = Share(0.0, 0.0, 0.0), case.excess is not None
    if case.excess is not None:  # only the past says what a step takes without the queue
        found = case.excess.share
        share = Share(found.mid, max(0.0, found.low), min(1.0, found.high))
    weakened = window.missing(signals.BALANCEDNESS_SUM, signals.BALANCEDNESS_COUNT)
    return Finding(
        ranks=names,
        share=share,
        confidence=confidence(share.mid, limit.share, missing=len(weakened)) if priced else 0.6 * 0.75 ** len(weakened),
        summary=f"tokens reach {who} late from every sender, and it is not late itself",
        evidence=_evidence(case, rows, limit.ratio),
        would_tell="" if priced and not weakened else "the engine's healthy past, for the cost; expert load, to exclude hot experts",
        weakened_by=weakened,
    )


def _evidence(case: Case, rows: tuple[int, ...], ratio: float) -> tuple[Evidence, ...]:
    waits, awaited = case.window.mean(signals.DISPATCH_WAIT), case.window.mean(signals.DISPATCH_AWAITED)
    return tuple(
        Evidence(
            signal=signals.DISPATCH_WAIT,
            what=f"rank {case.window.ranks[k]} waits {waits[k]:.1f} times as long in dispatch as its node's others for the same senders,"
            f" and is itself waited for {awaited[k]:.1f} times as long as they",
            observed=float(waits[k]),
            expected=1.0,
            unit="ratio",
            rank=case.window.ranks[k],
            threshold=ratio,
        )
        for k in rows[:8]
    )
