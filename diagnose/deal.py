"""How attention work is dealt to the ranks, split into how many requests and how long: what both request skews start from. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from collector import promql, signals
from diagnose import attribution, lockstep
from diagnose.case import Case
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


@dataclass(frozen=True, slots=True)
class Deal:
    """An uneven deal that costs time: the leading ranks, and how far their counts and lengths stand above their peers'."""

    rows: tuple[int, ...]
    share: Share
    count_ratio: float  # running requests over the peers' median
    length_ratio: float  # attention pairs per request over the peers' median
    evidence: tuple[Evidence, ...]
    weakened_by: tuple[str, ...]

    @property
    def by_length(self) -> bool:
        """Whether longer contexts, rather than more requests, make most of the difference."""
        return self.length_ratio > self.count_ratio


def uneven_deal(case: Case, limit: Limits) -> Deal | Healthy | NoData:
    """The deal of decode attention of a case when levelling it would give back at least `limit.share` of step time."""
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
    if not np.isfinite(running).any():
        return NoData(
            (signals.RUNNING,), "attention work is uneven, but without request counts more requests and longer ones look the same"
        )
    rows = tuple(int(k) for k in np.flatnonzero(load.pairs >= AS_BUSY * load.busiest))
    lengths = load.pairs / np.maximum(running, 0.5)
    row = load.leader
    return Deal(
        rows=rows,
        share=load.lost,
        count_ratio=_over(running, row),
        length_ratio=_over(lengths, row),
        evidence=(_pairs(case, load), _requests(case, running, row)),
        weakened_by=case.window.missing(signals.ATTENTION_PAIRS, signals.RESIDENT_TOKENS, signals.DECODE_STEPS),
    )


def _over(values: np.ndarray, row: int) -> float:
    usual = float(lockstep.peers_median(values)[row])
    return float(values[row]) / max(usual, 1e-9) if math.isfinite(usual) else 1.0


def _pairs(case: Case, load: attribution.PairLoad) -> Evidence:
    rank, mine = case.window.ranks[load.leader], load.busiest
    usual = float(lockstep.peers_median(load.pairs)[load.leader])
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


def _requests(case: Case, running: np.ndarray, row: int) -> Evidence:
    rank, usual = case.window.ranks[row], float(lockstep.peers_median(running)[row])
    return Evidence(
        signal=signals.RUNNING,
        what=f"rank {rank} runs {running[row]:.1f} requests, its peers {usual:.1f}",
        observed=float(running[row]),
        expected=usual,
        unit="requests",
        rank=rank,
        promql=promql.RUNNING,
    )
