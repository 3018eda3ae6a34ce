"""How attention work is dealt to the ranks, split into how many requests and how long: what both request skews start from. Pure."""

from __future__ import annotations

import numpy as np

from collector import enabling, promql, signals
from collector.model import Clock
from diagnose import attribution, entangled, late_host, lockstep, own_load
from diagnose.case import Case
from diagnose.dealt import Deal
from diagnose.model import Evidence, Healthy, NoData, Share
from diagnose.rules import Limits, Threshold

NEEDS = (signals.DECODE_STEPS, signals.RESIDENT_TOKENS, signals.RUNNING)

THRESHOLDS = {
    "share": Threshold(
        0.05,
        "of step time",
        "healthy traffic loses at most 0.018 to chance, at up to 1.9 times the mean pairs (healthy_spread.py)",
    )
}

AS_BUSY = 0.7
"""Share of the busiest rank's work from which another is named beside it: levelling that one alone would give back less than a third of
its work. Arithmetic, not a measurement."""


def uneven_deal(case: Case, limit: Limits) -> Deal | Healthy | NoData:
    """The deal of decode attention of a case when levelling it would give back at least `limit.share` of step time."""
    if case.window.engine.clock is Clock.NONE:
        return own_load.uneven(case, limit.share)
    load = case.pair_load
    running = case.window.mean(signals.RUNNING)
    if load is None or case.step_time is None:
        return NoData(case.window.missing(*NEEDS), "the deal of requests and contexts was not observed")
    if not case.long_enough:
        return NoData((), "the window is too short to show that a deal persists")
    if load.lost is None:
        return NoData(
            (), "what an attention pair costs is unknown: the engine names no known card, and the step time does not vary with load"
        )
    lead = float(load.pairs[load.leader] / max(lockstep.average(load.pairs), 1e-9))
    if load.lost.mid < limit.share:
        return Healthy(f"the busiest rank has {lead:.1f} times the mean attention work, which costs {load.lost.mid:.1%} of step time")
    if lost := _partly(case):
        return NoData(lost, "contexts are uneven by what is held, and part of the counters that say what is read of it is lost")
    rows = tuple(int(k) for k in np.flatnonzero(load.pairs >= AS_BUSY * load.busiest))
    if not np.isfinite((running + lockstep.peers_median(running))[list(rows)]).all():
        return NoData(
            (signals.RUNNING,), "attention work is uneven, but without request counts more requests and longer ones look the same"
        )
    lengths = load.pairs / np.maximum(running, 0.5)
    entwined = _also_late(case, load)
    return Deal(
        rows=rows,
        share=_with_host(case, load.lost) if entwined else load.lost,
        counts=lockstep.over_peers(running),
        lengths=lockstep.over_peers(lengths),
        would_tell=entangled.EXPERIMENT if entwined else "",
        weakened_by=case.window.missing(signals.ATTENTION_PAIRS, signals.RESIDENT_TOKENS, signals.DECODE_STEPS),
    )


COUNTERS = (signals.ATTENTION_TOKENS, signals.ATTENTION_PAIRS, signals.STEPS_ACTIVE, signals.STEPS_IDLE)
"""Counters of one family, there together or not at all: tokens that are held and not attended to show only beside pairs per step."""


def _partly(case: Case) -> tuple[str, ...]:
    """Which of COUNTERS are missing, if this kind of engine gives them and others of them were read."""
    missing = case.window.missing(*COUNTERS)
    kind = case.window.engine.kind
    return missing if case.window.has_any(*COUNTERS) and all(enabling.given(name, kind) for name in missing) else ()


def _also_late(case: Case, load: attribution.PairLoad) -> bool:
    """Whether the leader is also the one that is late at the exchange, and nothing tells whether its load makes it so."""
    if case.window.has(signals.FORWARD_TIME) or entangled.tie(case.window) is not None:
        return False
    late = late_host.late_host(case, Limits(late_host.THRESHOLDS))
    return isinstance(late, late_host.LateHost) and late.rows == (load.leader,)


def _with_host(case: Case, share: Share) -> Share:
    """The share of the deal, up to what the leader's lateness costs too: the two cannot be told apart."""
    more = case.host_lost.high if case.host_lost else 0.0
    return Share(share.mid, share.low, min(1.0, share.high + more))


def evidence(case: Case, row: int) -> tuple[Evidence, ...]:
    """What one rank reads and runs, against its peers."""
    if case.window.engine.clock is Clock.NONE:
        return own_load.evidence(case, row)
    load = case.pair_load
    return (*(() if load is None else (_pairs(case, load, row),)), own_load.requests(case, row))


def _pairs(case: Case, load: attribution.PairLoad, row: int) -> Evidence:
    rank, mine = case.window.ranks[row], float(load.pairs[row])
    usual = float(lockstep.peers_median(load.pairs)[row])
    cost = f"; a pair costs {load.cost.mid * 1e9:.1f} ns ({load.cost.source})" if load.cost else ""
    return Evidence(
        signal="decode_pairs",
        what=f"rank {rank} reads {mine:,.0f} attention pairs per decode step, its peers {usual:,.0f}{cost}",
        observed=mine,
        expected=usual,
        unit="pairs/step",
        rank=rank,
        promql=promql.RESIDENT_TOKENS,
    )
