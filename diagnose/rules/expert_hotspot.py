"""Some experts are hot, and the card that holds them sets the pace.

What it detects: uneven expert load together with a step time that load, prefill and host waits do not explain.
Why it matters: the combine of each layer waits for the card with the most expert tokens, whatever rank the requests came from.
Not this rule: uneven attention (`context_length_skew`); a whole group that slows with level experts (`whole_group_slow`).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from collector import promql, signals
from diagnose import attribution, lockstep, sums
from diagnose.confidence import confidence
from diagnose.model import Class, Evidence, Finding, Healthy, NoData, Severity, Share
from diagnose.rules import Limits, Threshold, rule

if TYPE_CHECKING:
    from diagnose.case import Case


HOT = 2.0
"""Times the peers' expert load from which a card is named: healthy cards reach 1.14 (benchmarks/healthy_spread.py), a hot one 5.4."""


@rule(
    klass=Class.STRUCTURAL,
    severity=Severity.TICKET,
    remedy="Spread the hot experts: --enable-eplb, or more --ep-num-redundant-experts; rebalancing the requests cannot help.",
    needs=(signals.BALANCEDNESS_SUM, signals.BALANCEDNESS_COUNT, signals.DECODE_STEPS, signals.RESIDENT_TOKENS, signals.SYNC_WAIT),
    balancedness=Threshold(
        0.55,
        "mean/max",
        "healthy routing measured 0.84 to 0.87 (healthy_spread.py), a captured page 0.71; a card at 3.5 fair shares gives 0.29",
    ),
    chance=Threshold(
        0.67,
        "x what level experts show by chance",
        "healthy windows of all traffic have 0.79 of it or more (seeds 4 to 15), hot experts 0.33 to 0.56: half-way in ratio",
    ),
    share=Threshold(
        0.05,
        "of step time",
        "unexplained differences between healthy windows reach 0.031 (healthy_spread.py)",
    ),
    tokens=Threshold(
        32.0,
        "tokens/step",
        "at 8 experts a token over 8 cards, 32 tokens put 32 rows on a card, give or take 5.7: chance alone keeps balancedness above 0.75",
    ),
)
def expert_hotspot(case: Case, limit: Limits) -> Finding | Healthy | NoData:
    tokens = attribution.tokens_per_step(case.window)
    if tokens is not None and tokens < limit.tokens:
        return Healthy(f"only {tokens:.0f} tokens per step: so few make any expert load look uneven")
    level = case.balancedness
    if level is None or case.step_time is None:
        return NoData(
            case.window.missing(signals.BALANCEDNESS_SUM, signals.BALANCEDNESS_COUNT, signals.DECODE_STEPS), "expert load was not observed"
        )
    if case.waits is None or case.pair_load is None:
        return NoData(
            case.window.missing(signals.STEPS_ACTIVE, signals.SYNC_WAIT, signals.RESIDENT_TOKENS),
            "without waits and attention work a slow step cannot be laid at the experts' door",
        )
    if not case.long_enough:
        return NoData((), "the window is too short to show that expert load persists")
    if level >= (least := min(limit.balancedness, limit.chance * _by_chance(case))):
        return Healthy(f"expert balancedness is {level:.2f} (1 is level)")
    share = _share(case, level)
    if share.mid < limit.share:
        said = f"expert balancedness is {level:.2f}, but the step time shows no cost: {share.mid:.1%} unexplained"
        # experts that uneven cost something: where the range leaves room for twice what is blamed, how much is open
        return NoData((), f"{said}, up to {share.high:.0%} left open") if share.high >= 2.0 * limit.share else Healthy(said)
    weakened = case.window.missing(
        signals.EXPERT_LOAD, signals.ATTENTION_TOKENS, signals.RECV_WAIT, signals.RESIDENT_TOKENS, signals.DECODE_STEPS
    )
    sure = confidence(share.mid, limit.share, missing=len(weakened))
    return Finding(
        ranks=_hot(case),
        share=share,
        confidence=sure if case.excess else min(sure, 0.6),
        summary=f"expert load is uneven (balancedness {level:.2f}) and the steps are longer than attention, prefill and waits explain",
        evidence=_evidence(case, level, least),
        would_tell="" if case.excess else "the same engine's step time at level expert load: rebalance once and compare",
        weakened_by=weakened,
    )


def _by_chance(case: Case) -> float:
    """Balancedness of level experts in the decode steps, most of all steps: n requests put n rows on each card, the fullest of R has
    sqrt(2 n ln R) more. 1 where requests were not counted."""
    requests = sums.total(case.window.mean(signals.RUNNING))
    if not requests > 0:
        return 1.0
    return requests / (requests + math.sqrt(2.0 * requests * math.log(max(2, len(case.window.ranks)))))


def _share(case: Case, level: float) -> Share:
    """The unexplained rise over the past where there is one; else only a bound: the time that could be expert time, less level work."""
    if case.excess is not None:
        found = case.excess.share
        return Share(max(0.0, found.mid), max(0.0, found.low), min(1.0, found.high))
    host = case.host_lost.mid if case.host_lost else 0.0
    upper = max(0.0, (1.0 - level) * (1.0 - host))
    return Share(upper / 2, 0.0, upper)


def _hot(case: Case) -> tuple[int, ...]:
    load = case.window.mean(signals.EXPERT_LOAD)
    if not np.isfinite(load).any():
        return ()
    usual = lockstep.peers_median(load)
    return tuple(rank for rank, mine, peers in zip(case.window.ranks, load, usual, strict=True) if mine > HOT * peers)


def _evidence(case: Case, level: float, threshold: float) -> tuple[Evidence, ...]:
    before = case.balancedness_before
    found = [
        Evidence(
            signal="expert_balancedness",
            what=f"expert balancedness is {level:.2f}" + ("" if before is None else f", it was {before:.2f}"),
            observed=level,
            expected=before,
            unit="mean/max",
            threshold=threshold,
            promql=promql.BALANCEDNESS,
        )
    ]
    if case.excess is not None:
        found.append(
            Evidence(
                signal="step_time",
                what=f"a step takes {case.excess.now * 1e3:.1f} ms, it took {case.excess.before * 1e3:.1f} ms;"
                f" {case.excess.share.mid:.0%} of it has no other cause",
                observed=case.excess.now,
                expected=case.excess.before,
                unit="s",
                promql=promql.STEP_TIME,
            )
        )
    load = case.window.mean(signals.EXPERT_LOAD)
    for rank in _hot(case):
        row = case.window.ranks.index(rank)
        peers = float(lockstep.peers_median(load)[row])
        found.append(
            Evidence(
                signal=signals.EXPERT_LOAD,
                what=f"the experts on rank {rank}'s card take {load[row] / max(peers, 1e-9):.1f} times the tokens of a peer's",
                observed=float(load[row]),
                expected=peers,
                unit="tokens/s",
                rank=rank,
                promql=promql.EXPERT_LOAD,
            )
        )
    return tuple(found)
