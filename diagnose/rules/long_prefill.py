"""One rank computes long prompts while all others decode.

What it detects: prefill time that falls mostly on one rank and stretches everybody's steps.
Why it matters: a step lasts as long as its longest part; one rank's prompt chunk is everybody's slow token, and CUDA graphs are lost.
Not this rule: contexts already computed (`context_length_skew`); prompts that lost their cache (`prefix_cache_skew`, `kv_pressure`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from collector import promql, signals
from collector.model import Clock
from diagnose import lockstep, own_prefill
from diagnose.confidence import confidence
from diagnose.model import Class, Evidence, Finding, Healthy, NoData, Severity
from diagnose.prefill import THRESHOLDS, Why, why
from diagnose.rules import Limits, rule

if TYPE_CHECKING:
    from diagnose.case import Case


@rule(
    klass=Class.LOAD,
    severity=Severity.TICKET,
    remedy="Let the ranks prefill together (--enable-prefill-delayer), cut chunks smaller (--chunked-prefill-size), or move prefill to"
    " its own servers (PD disaggregation).",
    needs=(signals.PREFILL_BUSY, signals.DECODE_STEPS),
    **THRESHOLDS,
)
def long_prefill(case: Case, limit: Limits) -> Finding | Healthy | NoData:
    if case.window.engine.clock is Clock.NONE:
        return own_prefill.answer(case, limit, Why.NEW)
    load = case.prefill_load
    if load is None:
        return NoData(case.window.missing(signals.PREFILL_BUSY, signals.DECODE_STEPS), "prefill time was not observed")
    if not case.long_enough:
        return NoData((), "the window is too short to show that prefill persists on one rank")
    busy, usual = float(load.busy[load.leader]), float(lockstep.peers_median(load.busy)[load.leader])
    if load.lost.mid < limit.share or busy < limit.lead * usual:
        return Healthy(f"the rank that prefills most spends {busy:.0%} of its time on it, its peers {usual:.0%}")
    if (reason := why(case.window, load.leader, limit)) is not Why.NEW:
        return Healthy(f"the rank that prefills most {reason.value}")
    rank = case.window.ranks[load.leader]
    weakened = case.window.missing(
        signals.STEPS_ACTIVE, signals.PREFILL_TOKENS, signals.CACHED_TOKENS, signals.RETRACTED, signals.DECODE_STEPS
    )
    tokens = case.window.mean(signals.PREFILL_TOKENS)
    others = float(lockstep.peers_median(tokens)[load.leader])
    return Finding(
        ranks=(rank,),
        share=load.lost,
        confidence=confidence(load.lost.mid, limit.share, missing=len(weakened)),
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
    )
