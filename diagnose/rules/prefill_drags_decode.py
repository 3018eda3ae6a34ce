"""Prefill on all ranks in turn drags everybody's decoding.

What it detects: steps that prefill touches and lengthens, on whatever rank, evenly dealt and more than in the engine's past.
Why it matters: a step lasts as long as its longest part, so with N ranks each one's prompt is a slow token for all N.
Not this rule: one rank that prefills (`long_prefill`, `prefix_cache_skew`, `burst_misrouted`); graphs lost without prefill
(`graph_fallback`); slow steps at the same prefill (`whole_group_slow`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from collector import promql, signals
from collector.model import Clock
from diagnose import lockstep, lone_prefill, prefill, prefill_drag
from diagnose.confidence import confidence
from diagnose.model import Class, Evidence, Finding, Healthy, NoData, Severity, Share
from diagnose.rules import Limits, rule

if TYPE_CHECKING:
    from diagnose.case import Case


@rule(
    klass=Class.STRUCTURAL,
    severity=Severity.TICKET,
    remedy="Prefill on servers of its own (PD disaggregation: --disaggregation-mode), or less of it per step: SGLang"
    " --enable-prefill-delayer (ranks prefill together), --enable-mixed-chunk, a smaller --chunked-prefill-size; vLLM a smaller"
    " --max-num-batched-tokens.",
    needs=(*prefill_drag.NEEDS, signals.PREFILL_BUSY, signals.FIRST_TOKENS),
    **prefill_drag.THRESHOLDS,
)
def prefill_drags_decode(case: Case, limit: Limits) -> Finding | Healthy | NoData:
    window = case.window
    if window.engine.facts.role == "prefill":
        return Healthy("a prefill server has no decodes that prompts could drag")
    if window.engine.clock is Clock.NONE:
        return Healthy("the ranks have no common clock: no prompt drags another rank's decodes")
    drag, load = case.group_drag, case.prefill_load
    # what some engines never publish first: only that says that looking is impossible there
    unpublished = window.missing(signals.GRAPH_STEPS, signals.EAGER_STEPS, signals.PREFILL_BUSY)
    if missing := unpublished or window.missing(*prefill_drag.NEEDS):
        return NoData(missing, "which steps had a prefill, and how long they took, was not counted")
    if drag is None or load is None:
        return Healthy("no rank computed a prompt while others decoded")
    if not case.long_enough:
        return NoData((), "the window is too short to show that prefill goes on")
    busy, usual = float(load.busy[load.leader]), float(lockstep.peers_median(load.busy)[load.leader])
    said = f"prefill touches {drag.touched:.0%} of the steps, which take {drag.prefill_step * 1e3:.0f} ms"
    if busy >= limit.lead * usual:
        return Healthy(f"{said}; most of it is one rank's")
    if case.baseline is None:
        share, severity = _alone(drag), Severity.NOTE  # without a past it may be what this engine was built for
        if share.mid < limit.alone:
            return Healthy(f"{said}: {share.mid:.0%} of step time")
    else:
        grown = case.prefill_growth
        if grown is None:
            return NoData(window.missing(signals.RESIDENT_TOKENS, signals.SYNC_WAIT, signals.PREFILL_TOKENS), "the past holds no measure")
        share, severity = grown.share, None
        more = f"{said}; {grown.touched:+.0%} of the steps against the past, worth {share.mid:.1%} of step time"
        if not prefill_drag.grew(grown, limit):
            if prefill_drag.may(grown, limit):
                return NoData((), f"{more}, but the past had stretches like it: read for longer")
            return Healthy(more)
        if _one_ranks(case):
            return Healthy(f"{more}; most of it is one rank's")
        if (far := lone_prefill.apart(case)) >= limit.apart:
            return NoData((), f"{more}, but one rank prefills {far:.1f} times as far above the mean as any did: it may be its prompts")
        if not grown.each >= limit.each:
            why = f"{more}, with requests as long as ever: a burst of them, or a load that stays; read for longer"
            return NoData(window.missing(signals.FIRST_TOKENS), why)
    weakened = window.missing(
        signals.RESIDENT_TOKENS, signals.ATTENTION_PAIRS, signals.SYNC_WAIT, signals.RECV_WAIT, signals.PREFILL_TOKENS
    )
    sure = confidence(share.mid, limit.share, missing=len(weakened))
    return Finding(
        ranks=(),
        share=share,
        confidence=sure if case.baseline is not None else min(sure, prefill_drag.UNCOMPARED),
        summary=f"{said}; no rank stands out: it is the layout that runs prefill and decode in one group",
        evidence=_evidence(case, drag, load.busy, limit.lead * usual),
        would_tell="the time per output token with prefill held back for a minute, or on an engine that only decodes",
        weakened_by=weakened,
        severity=severity,
    )


def _one_ranks(case: Case) -> bool:
    """Whether one rank's prompts are blamed already."""
    limit = Limits(prefill.THRESHOLDS)
    found = lone_prefill.lone_prefill(case, limit)
    return isinstance(found, lone_prefill.LonePrefill) and found.passing(limit) is None


def _alone(drag: prefill_drag.PrefillDrag) -> Share:
    """The share by the window's own plain step; without one, prefill in nearly all steps may cost nothing or all of them."""
    own = drag.share()
    return Share(drag.touched / 2, 0.0, drag.touched) if own is None else Share(own / prefill_drag.OVERSTATED, own / 2, own)


def _evidence(case: Case, drag: prefill_drag.PrefillDrag, busy: np.ndarray, most: float) -> tuple[Evidence, ...]:
    before = case.baseline and lockstep.cadence(case.baseline)
    plain = before or drag.plain_step
    compared = "" if plain is None else f", against {plain * 1e3:.0f} ms {'in the past' if before else 'without'}"
    return (
        Evidence(
            signal=signals.EAGER_STEPS,
            what=f"{drag.touched:.0%} of the group's steps have a prefill on some rank and take {drag.prefill_step * 1e3:.0f} ms{compared}",
            observed=drag.prefill_step,
            expected=plain,
            unit="s/step",
            promql=promql.EAGER_SHARE,
        ),
        Evidence(
            signal=signals.PREFILL_BUSY,
            what=f"every rank takes part: {np.nanmin(busy):.0%} to {np.nanmax(busy):.0%} of its time in prefill steps",
            observed=float(np.nanmax(busy)),
            expected=float(np.nanmean(busy)),
            unit="s/s",
            threshold=most,
            promql=promql.PREFILL_TOKENS,
        ),
    )
