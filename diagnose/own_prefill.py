"""Prompts that lengthen one rank's own steps, on ranks without a common clock. Pure."""

from __future__ import annotations

import numpy as np

from collector import promql, signals
from diagnose import independent, lockstep, prefill
from diagnose.case import Case
from diagnose.confidence import confidence
from diagnose.model import Evidence, Finding, Healthy, NoData, Share
from diagnose.rules import Limits


def answer(case: Case, limit: Limits, reason: prefill.Why) -> Finding | Healthy | NoData:
    """The answer of the rule that is about prompts computed for this reason."""
    window = case.window
    found = independent.pace(window)
    if found is None or (missing := window.missing(signals.PREFILL_TOKENS)):
        return NoData(window.missing(signals.DECODE_TIME, signals.PREFILL_TOKENS), "who computes prompts was not observed")
    if not case.long_enough:
        return NoData((), "the window is too short to show that prompts persist on one rank")
    row = lockstep.highest(found.longer)
    longer, mine = float(found.longer[row]), float(found.prompt[row])
    usual = float(lockstep.peers_median(found.prompt)[row])
    if longer < limit.share:
        return Healthy(f"the rank with the longest steps needs {longer:.1%} more of its own time than its peers")
    running = window.mean(signals.RUNNING)
    times = mine / usual if usual > 0 else float("inf")
    crowd = float(running[row]) / max(float(lockstep.peers_median(running)[row]), 0.5) if np.isfinite(running[row]) else 1.0
    if mine < independent.FLOOR * found.tokens[row] or times < limit.lead * max(crowd, 1.0):
        return Healthy(f"the rank with the longest steps computes {mine:,.0f} prompt tokens in each, its peers {usual:,.0f}")
    if found.slower[row] > 0:
        return Healthy("the rank with the longest steps takes longer than its prompts explain")
    if (why := prefill.why(window, row, limit)) is not reason:
        return Healthy(f"the rank with the longest steps {why.value}")
    if missing := window.missing(signals.CACHED_TOKENS) if reason is prefill.Why.UNCACHED else ():
        return NoData(missing, "whether its prompts were in a cache was not counted")
    rank = window.ranks[row]
    weakened = window.missing(signals.CACHED_TOKENS, signals.RETRACTED, signals.RESIDENT_TOKENS)
    return Finding(
        ranks=(rank,),
        share=Share(longer, longer / 2, longer),
        confidence=confidence(longer, limit.share, missing=len(weakened)),
        summary=f"rank {rank} {why.value}: {mine:,.0f} prompt tokens in each of its steps, its peers {usual:,.0f}; its own steps take"
        f" {found.steps[row] * 1e3:.1f} ms, theirs {found.plain[row] * 1e3:.1f} ms",
        evidence=(
            Evidence(
                signal=signals.PREFILL_TOKENS,
                what=f"rank {rank} computes {mine:,.0f} prompt tokens per step, its peers {usual:,.0f}; prompts under way are counted by"
                " how its KV grows",
                observed=mine,
                expected=usual,
                unit="tokens/step",
                rank=rank,
                threshold=limit.lead * usual,
                promql=promql.VLLM_PREFILL_TOKENS,
            ),
        ),
        would_tell="the rank's step time between its prompts: it must be its peers'",
        weakened_by=weakened,
    )
