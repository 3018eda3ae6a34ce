"""The whole group is slower than its own past, at the same load, and no rank can be named.

What it detects: a step time above the engine's healthy past that attention, prefill, host waits and experts do not explain.
Why it matters: inside a lockstep a slow card, a power cap on all cards and a slower build look the same to the engine's metrics.
Not this rule: uneven experts (`expert_hotspot`); lost graphs (`graph_fallback`); more prefill (`prefill_drags_decode`); a late host
(`slow_rank`); more load than before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from collector import promql, signals
from diagnose import graphs, prefill_drag
from diagnose.confidence import confidence
from diagnose.model import Class, Evidence, Finding, Healthy, NoData, Severity
from diagnose.rules import Limits, Threshold, rule

if TYPE_CHECKING:
    from diagnose.case import Case

NEEDS = (
    signals.DECODE_STEPS,
    signals.RESIDENT_TOKENS,
    signals.ATTENTION_TOKENS,
    signals.PREFILL_BUSY,
    signals.SYNC_WAIT,
    signals.RECV_WAIT,
)


@rule(
    klass=Class.INSUFFICIENT,
    severity=Severity.TICKET,
    remedy="Read the cards' own evidence: clocks, throttle reasons, temperatures and link errors (nvidia-smi -q, dcgm-exporter) on every"
    " node of the group, and what was deployed at the onset.",
    needs=NEEDS,
    share=Threshold(
        0.10,
        "of step time",
        "three times what healthy windows differ by, 0.031 (healthy_spread.py); a group-wide claim has no peers to check it",
    ),
    balancedness=Threshold(
        0.10,
        "mean/max",
        "balancedness of healthy windows differs by at most 0.011 (healthy_spread.py), so a fall of 0.1 is a change in the experts",
    ),
    tokens=Threshold(
        1.25,
        "x tokens per step",
        "tokens per step of healthy windows differ by up to 1.13 (healthy_spread.py); beyond twice that the step time may follow the load",
    ),
)
def whole_group_slow(case: Case, limit: Limits) -> Finding | Healthy | NoData:
    if missing := case.window.missing(*NEEDS):
        return NoData(missing, "with these missing, another cause could be behind a slow step")
    if case.baseline is None:
        return NoData((), "there is no healthy past of this engine to compare with")
    excess = case.excess
    if excess is None or excess.tokens_ratio is None:
        return NoData((), "the engine's past does not hold what a comparison needs")
    if excess.share.mid < limit.share or excess.share.low < limit.share / 2:
        return Healthy(
            f"a step takes {excess.now * 1e3:.1f} ms against {excess.before * 1e3:.1f} ms before: {excess.share.mid:.1%} unexplained"
        )
    if not 1 / limit.tokens <= excess.tokens_ratio <= limit.tokens:
        return NoData((), f"the load is {excess.tokens_ratio:.1f} times what it was: the past is no measure for it")
    fallen = case.balancedness_before is not None and case.balancedness is not None and case.balancedness_before - case.balancedness
    if fallen and fallen > limit.balancedness:
        return Healthy(f"expert balancedness fell by {fallen:.2f} as the steps grew: the experts explain it")
    if graphs.lost(case.window, case.baseline):
        return Healthy("decode passes lost their CUDA graphs as the steps grew: that explains it")
    if (grown := case.prefill_growth) is not None and prefill_drag.fires(grown, Limits(prefill_drag.THRESHOLDS)):
        return Healthy(f"prefill touches {grown.touched:.0%} more of the steps than before: that explains it")
    weakened = case.window.missing(signals.BALANCEDNESS_COUNT, signals.EAGER_STEPS)
    return Finding(
        ranks=(),
        share=excess.share,
        confidence=confidence(excess.share.mid, limit.share, missing=len(weakened)),
        summary=f"steps take {excess.now * 1e3:.1f} ms instead of {excess.before * 1e3:.1f} ms at the same load; no rank can be named"
        + ("; hot experts cannot be excluded" if weakened else ""),
        evidence=(
            Evidence(
                signal="step_time",
                what=f"a step takes {excess.now * 1e3:.1f} ms, it took {excess.before * 1e3:.1f} ms,"
                f" with {excess.tokens_ratio:.2f} times the tokens",
                observed=excess.now,
                expected=excess.before,
                unit="s",
                threshold=excess.before / (1.0 - limit.share),
                promql=promql.STEP_TIME,
            ),
        ),
        would_tell="clocks and throttle reasons of the group's cards (dcgm-exporter), and expert balancedness if it is not reported",
        weakened_by=weakened,
    )
