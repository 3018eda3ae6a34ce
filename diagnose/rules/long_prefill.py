"""One rank computes long prompts while all others decode.

What it detects: prefill time that falls mostly on one rank, in every part of the window, and stretches everybody's steps.
Why it matters: a step lasts as long as its longest part; one rank's prompt chunk is everybody's slow token, and CUDA graphs are lost.
Not this rule: contexts already computed (`context_length_skew`); prompts that lost their cache (`prefix_cache_skew`, `kv_pressure`);
requests that come at once (`burst_misrouted`); prompts on all ranks in turn (`prefill_drags_decode`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from collector import promql, signals
from collector.model import Clock
from diagnose import lockstep, lone_prefill, own_prefill, prefill_drag
from diagnose.confidence import confidence
from diagnose.model import Class, Evidence, Finding, Healthy, NoData, Severity
from diagnose.prefill import THRESHOLDS, Why
from diagnose.rules import Limits, rule

if TYPE_CHECKING:
    from diagnose.case import Case


@rule(
    klass=Class.LOAD,
    severity=Severity.TICKET,
    remedy="Let the ranks prefill together (--enable-prefill-delayer), cut chunks smaller (--chunked-prefill-size), or move prefill to"
    " its own servers (PD disaggregation).",
    needs=(*lone_prefill.NEEDS, signals.FIRST_TOKENS),
    **THRESHOLDS,
)
def long_prefill(case: Case, limit: Limits) -> Finding | Healthy | NoData:
    if case.window.engine.clock is Clock.NONE:
        return own_prefill.answer(case, limit, Why.NEW)
    found = lone_prefill.lone_prefill(case, limit)
    if not isinstance(found, lone_prefill.LonePrefill):
        return found
    if found.reason is not Why.NEW:
        return Healthy(f"the rank that prefills most {found.reason.value}")
    if (calm := found.passing(limit)) is not None:
        return calm
    if case.baseline is not None:
        longer = prefill_drag.longer(case.window, case.baseline)
        if np.isnan(longer):
            return NoData(
                case.window.missing(signals.FIRST_TOKENS), "one rank prefills most, but if its prompts are longer was not counted"
            )
        if longer < limit.longer:
            return Healthy(f"one rank prefills most, with {longer:.2f} times the past's prompt tokens per request: they wait in line there")
    load, busy, usual, weakened = found.load, found.busy, found.usual, found.weakened_by
    rank = case.window.ranks[load.leader]
    tokens = case.window.mean(signals.PREFILL_TOKENS)
    others = float(lockstep.peers_median(tokens)[load.leader])
    return Finding(
        ranks=(rank,),
        share=load.lost,
        confidence=confidence(load.lost.mid, limit.share, agreement=found.persistence, missing=len(weakened)),
        summary=f"rank {rank} spends {busy:.0%} of the time computing prompts while its peers decode at its pace",
        evidence=(
            Evidence(
                signal=signals.PREFILL_BUSY,
                what=f"rank {rank} is in prefill steps {busy:.0%} of the time, its peers {usual:.0%}",
                observed=busy,
                expected=usual,
                unit="s/s",
                rank=rank,
                threshold=limit.lead * usual,
                promql=promql.PREFILL_TOKENS,
            ),
            *(
                ()
                if not np.isfinite(tokens[load.leader])
                else (
                    Evidence(
                        signal=signals.PREFILL_TOKENS,
                        what=f"it computes {tokens[load.leader]:,.0f} prompt tokens per second, its peers {others:,.0f}",
                        observed=float(tokens[load.leader]),
                        expected=others,
                        unit="tokens/s",
                        rank=rank,
                        promql=promql.PREFILL_TOKENS,
                    ),
                )
            ),
        ),
        would_tell="the step time between prompts: it must fall back to the plain decode step",
        weakened_by=weakened,
        severity=found.severity,
    )
