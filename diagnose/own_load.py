"""Uneven load on ranks without a common clock: it lengthens the busy rank's own steps and nobody else's. Pure."""

from __future__ import annotations

import numpy as np

from collector import promql, signals
from diagnose import independent, lockstep
from diagnose.case import Case
from diagnose.dealt import Deal
from diagnose.model import Evidence, Healthy, NoData, Share

APART = 1.5
"""Times the peers' requests, or KV tokens per request, from which a rank's longer steps are laid at the door of its load: healthy dense
ranks of the workload under vLLM's score hold up to 1.14 times their peers' requests."""


def uneven(case: Case, least: float) -> Deal | Healthy | NoData:
    """The deal that lengthens one rank's own steps by at least `least` of them, beyond its peers'."""
    window = case.window
    found = independent.pace(window)
    running = window.mean(signals.RUNNING)
    if found is None or not np.isfinite(running).any():
        return NoData(window.missing(signals.DECODE_TIME, signals.DECODE_STEPS, signals.RUNNING), "the deal of requests was not observed")
    if not case.long_enough:
        return NoData((), "the window is too short to show that a deal persists")
    row = lockstep.highest(found.longer)
    if found.longer[row] < least:
        return Healthy(f"the rank with the longest steps needs {found.longer[row]:.1%} more of its own time than its peers")
    kv = window.mean(signals.RESIDENT_TOKENS) if window.has(signals.RESIDENT_TOKENS) else window.mean(signals.KV_USAGE)
    counts, lengths = lockstep.over_peers(running), lockstep.over_peers(kv / np.maximum(running, 0.5))
    if max(counts[row], lengths[row]) < APART:
        return Healthy(f"the rank with the longest steps has {counts[row]:.1f} times its peers' requests, {lengths[row]:.1f} times as long")
    if found.slower[row] > 0:
        return Healthy("the rank with the longest steps takes longer than its load explains")
    return Deal(
        rows=(row,),
        share=Share(float(found.longer[row]) / 2, 0.0, float(found.longer[row])),
        counts=counts,
        lengths=lengths,
        weakened_by=window.missing(signals.RESIDENT_TOKENS, signals.DECODE_STEPS),
    )


def evidence(case: Case, row: int) -> tuple[Evidence, ...]:
    """What one rank's own steps take and what it runs, against its peers."""
    found = independent.pace(case.window)
    return (*(() if found is None else (_steps(case, found, row),)), requests(case, row))


def _steps(case: Case, found: independent.Pace, row: int) -> Evidence:
    rank = case.window.ranks[row]
    return Evidence(
        signal="step_time",
        what=f"rank {rank}'s own steps take {found.steps[row] * 1e3:.1f} ms, its peers' {found.plain[row] * 1e3:.1f} ms; by its load",
        observed=float(found.steps[row]),
        expected=float(found.plain[row]),
        unit="s",
        rank=rank,
        promql=promql.VLLM_STEP_TIME,
    )


def requests(case: Case, row: int) -> Evidence:
    """How many requests one rank runs, against its peers."""
    running = case.window.mean(signals.RUNNING)
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
