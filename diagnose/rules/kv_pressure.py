"""One rank's KV pool is too full: requests are pushed out and computed again.

What it detects: retractions on one rank that its peers do not have.
Why it matters: each retracted request loses its KV and is prefilled again, which holds up everybody's steps and its own user most.
A pool that is full while its peers' have room is a note: it is about to.
Not this rule: pools that are all full and retract nothing; prompts that are long and new (`long_prefill`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from collector import promql, signals
from diagnose import lockstep, sums
from diagnose.confidence import confidence
from diagnose.model import Class, Evidence, Finding, Healthy, NoData, Severity, Share
from diagnose.rules import Limits, Threshold, rule

if TYPE_CHECKING:
    from diagnose.case import Case


@rule(
    klass=Class.LOAD,
    severity=Severity.TICKET,
    remedy="Deal by tokens (--load-balance-method total_tokens), admit less (--schedule-conservativeness, --max-running-requests), or give"
    " the rank back what took its pool.",
    needs=(signals.RETRACTED, signals.KV_USAGE),
    rate=Threshold(
        0.03, "requests/s", "one in the half minute that the service looks at; 576 healthy windows as long, of six traffics, retract 0"
    ),
    full=Threshold(
        0.9,
        "of the pool",
        "the fullest of healthy windows was at 0.4 (576, six traffics); pools that kept 3 to 6 % for requests showed 0.96 to 0.99",
    ),
    room=Threshold(
        0.5,
        "of the peers' pools",
        "7 peers that are half empty have room for 3 such pools: dealing helps, which it does not where all are full",
    ),
    lead=Threshold(
        3.0, "x the peers' retractions", "what all ranks do alike is a pool too small for the load: no dealing helps below 3 to 1"
    ),
)
def kv_pressure(case: Case, limit: Limits) -> Finding | Healthy | NoData:
    retracted = case.window.mean(signals.RETRACTED)
    if not np.isfinite(retracted).any():
        return NoData((signals.RETRACTED,), "retractions were not counted")
    row = lockstep.highest(retracted)
    rate = float(retracted[row])
    if rate < limit.rate:
        return _full(case, limit)
    usual = float(sums.zeroed(lockstep.peers_median(retracted))[row])
    if rate < limit.lead * usual:
        return Healthy(f"all ranks push requests out alike, the busiest {rate:.2f} per second: the pools are small for the load")
    rank = case.window.ranks[row]
    usage = case.window.mean(signals.KV_USAGE)
    cost = _cost(case, row)
    seen = (_usage(case, row, usage),) if np.isfinite(usage[row]) else ()
    return Finding(
        ranks=(rank,),
        share=cost,
        confidence=0.9 if seen else 0.7,
        summary=f"rank {rank} pushes {rate:.2f} requests per second out of its KV pool and computes them again",
        evidence=(
            Evidence(
                signal=signals.RETRACTED,
                what=f"rank {rank} retracts {rate:.2f} requests per second, its peers {usual:.2f}",
                observed=rate,
                expected=usual,
                unit="requests/s",
                rank=rank,
                threshold=limit.rate,
                promql=promql.RETRACTED,
            ),
            *seen,
        ),
        would_tell="KV usage of that rank after some of its long requests end: retractions must stop below the full pool",
        weakened_by=case.window.missing(signals.KV_USAGE),
    )


def _full(case: Case, limit: Limits) -> Finding | Healthy | NoData:
    """A note on the one rank whose pool is full while its peers' are not: what comes next waits, or pushes others out."""
    calm = Healthy("no rank pushes requests out of its KV pool")
    usage = case.window.mean(signals.KV_USAGE)
    if not np.isfinite(usage).any():
        return NoData((signals.KV_USAGE,), "no rank pushes requests out of its KV pool, but how full the pools are was not observed")
    if np.isfinite(usage).sum() < 2 or not case.long_enough:
        return calm
    row = lockstep.highest(usage)
    if usage[row] < limit.full or (usual := float(lockstep.peers_median(usage)[row])) > limit.room:
        return calm
    rank = case.window.ranks[row]
    return Finding(
        ranks=(rank,),
        share=Share(0.0, 0.0, 0.0),  # nothing yet; contexts that fill it are another rule's
        confidence=confidence(float(usage[row]), limit.full),
        summary=f"rank {rank}'s KV pool is {usage[row]:.0%} full, its peers' {usual:.0%}: what comes next waits there or pushes others out",
        evidence=(_usage(case, row, usage),),
        would_tell="retractions and waiting requests of that rank while its peers have room; what holds its pool, if its requests do not",
        severity=Severity.NOTE,
    )


def _cost(case: Case, row: int) -> Share:
    """What the rank costs the group: its prompts computed again, or the pairs of what fills its pool, whichever is more."""
    prefill, pairs = case.prefill_load, case.pair_load
    again = prefill.lost if prefill is not None and prefill.leader == row else Share(0.0, 0.0, 0.0)
    fills = pairs.lost if pairs is not None and pairs.leader == row and pairs.lost is not None else Share(0.0, 0.0, 0.0)
    return max(again, fills, key=lambda share: share.mid)


def _usage(case: Case, row: int, usage: np.ndarray) -> Evidence:
    usual = float(lockstep.peers_median(usage)[row])
    return Evidence(
        signal=signals.KV_USAGE,
        what=f"its KV pool is {usage[row]:.0%} full, its peers' {usual:.0%}",
        observed=float(usage[row]),
        expected=usual,
        unit="ratio",
        rank=case.window.ranks[row],
        promql=promql.KV_USAGE,
    )
