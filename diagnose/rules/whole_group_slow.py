"""The whole group is slower than its own past or than its twins, at the same load, and no rank can be named.

What it detects: a step time above the engine's healthy past, or without one above engines that serve the same, that attention, prefill,
host waits and experts do not explain.
Why it matters: inside a lockstep a slow card, a power cap on all cards and a slower build look the same to the engine's metrics.
Not this rule: uneven experts (`expert_hotspot`); lost graphs (`graph_fallback`); more prefill (`prefill_drags_decode`); a queue before a
card (`dispatch_skew`); a late host (`slow_rank`); more load than before; a card that itself says why it is slow (`gpu_throttled`,
`gpu_degraded`, `link_degraded`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from collector import promql, signals
from collector.model import Clock
from diagnose import (
    attribution,
    card_blame,
    dispatch,
    fleet,
    graphs,
    group_pace,
    late_card,
    late_host,
    lockstep,
    over_past,
    prefill_drag,
    slow_card,
    starvation,
)
from diagnose.confidence import confidence
from diagnose.model import Class, Evidence, Finding, Healthy, NoData, Severity
from diagnose.rules import Limits, Threshold, rule

if TYPE_CHECKING:
    from collector.model import Window
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
    if case.window.engine.clock is not Clock.EXCHANGE:
        return group_pace.whole_group(case, limit)
    if case.prefills:
        return NoData((), "a prefill server's steps are as long as its prompts: no other step time is their measure")
    if missing := case.window.missing(*NEEDS):
        return NoData(missing, "with these missing, another cause could be behind a slow step")
    found = _reference(case, limit)
    if isinstance(found, NoData):
        return found
    excess, before = found.excess, attribution.balancedness(found.window)
    said = f"a step takes {excess.now * 1e3:.1f} ms against {found.against}: {excess.share.mid:.1%} unexplained"
    if excess.by_load is None:  # means alone were compared
        if excess.share.mid < limit.share or excess.share.low < limit.share / 2:
            return Healthy(said)
        if not 1 / limit.tokens <= found.tokens_ratio <= limit.tokens:
            return NoData((), f"the load is {found.tokens_ratio:.1f} times what it was: the past is no measure for it")
    elif (open_ := _open(excess, found.tokens_ratio, limit)) or excess.share.mid < limit.share:
        return NoData((), f"{said}, and the past's load is no measure for this one's") if open_ else Healthy(said)
    fallen = before is not None and case.balancedness is not None and before - case.balancedness
    if fallen and fallen > limit.balancedness:
        return Healthy(f"expert balancedness is {fallen:.2f} lower where the steps are longer: the experts explain it")
    if graphs.lost(case.window, found.window):
        return Healthy("decode passes lost their CUDA graphs as the steps grew: that explains it")
    if cards := card_blame.suspects(case):
        return Healthy(f"the card of rank {', '.join(map(str, cards))} itself says that it is at fault: that explains it")
    if starvation.kept(case):
        return Healthy("a rank's process is kept from running: that explains it")
    if rows := _late_by(case, excess.share.mid * excess.now):
        return Healthy(f"the host of rank {', '.join(map(str, case.rank_ids(rows)))} is late by more than that: it explains it")
    if (grown := case.prefill_growth) is not None and prefill_drag.grew(grown, Limits(prefill_drag.THRESHOLDS)):
        return Healthy(f"prefill touches {grown.touched:.0%} more of the steps than before: that explains it")
    if (card := late_card.late_card(case, limit.share)) is not None:
        return Healthy(f"{card.summary}: that explains it")
    if rows := dispatch.queued(case.window, dispatch.THRESHOLDS["ratio"].value):
        return Healthy(f"tokens reach rank {', '.join(map(str, case.rank_ids(rows)))} late in every dispatch: that explains it")
    weakened = case.window.missing(signals.BALANCEDNESS_COUNT, signals.EAGER_STEPS)
    return Finding(
        ranks=(),
        share=excess.share,
        confidence=confidence(excess.share.mid, limit.share, missing=len(weakened)),
        summary=f"{found.summary}; no rank can be named" + ("; hot experts cannot be excluded" if weakened else ""),
        evidence=(
            Evidence(
                signal="step_time",
                what=f"a step takes {excess.now * 1e3:.1f} ms against {found.against}, with {found.tokens_ratio:.2f} times the tokens",
                observed=excess.now,
                expected=found.expected,
                unit="s",
                threshold=found.expected / (1.0 - limit.share),
                promql=promql.STEP_TIME,
            ),
        ),
        would_tell=_would_tell(case),
        weakened_by=weakened,
    )


def _open(excess: over_past.Excess, tokens_ratio: float, limit: Limits) -> bool:
    """Whether a fit over past and window leaves open if the group is slow: its range reaches from no rise to one that would be blamed; or
    another load takes far less than the past's prices say, so that they are none for it."""
    share = excess.share
    if share.mid >= limit.share:
        return share.low < limit.share / 2
    moved = not 1 / limit.tokens <= tokens_ratio <= limit.tokens
    return share.high >= 2 * limit.share or (moved and share.high <= -limit.share)


def _late_by(case: Case, seconds: float) -> tuple[int, ...]:
    """Rows of ranks whose hosts are late at a cost, by at least so much per step: overlap leaves open how much of it the steps grew by."""
    late = late_host.late_host(case, Limits(late_host.THRESHOLDS))
    if not isinstance(late, late_host.LateHost) or case.waits is None:
        return ()
    waited = lockstep.average(case.waits.per_step) if late.several else case.waits.lost
    return late.rows if waited >= seconds else ()


@dataclass(frozen=True, slots=True)
class _Reference:
    """What the engine is held against, and how to say so."""

    window: Window
    excess: over_past.Excess
    tokens_ratio: float
    expected: float  # s per step
    against: str
    summary: str


def _reference(case: Case, limit: Limits) -> _Reference | NoData:
    """The healthy past, or without one the twins."""
    if case.baseline is not None:
        past = case.excess
        if past is None or past.tokens_ratio is None:
            return NoData((), "the engine's past does not hold what a comparison needs")
        was = f"{past.before * 1e3:.1f} ms before"
        summary = f"steps take {past.now * 1e3:.1f} ms instead of {past.before * 1e3:.1f} ms at the same load"
        return _Reference(case.baseline, past, past.tokens_ratio, past.before, was, summary)
    if not case.twins:
        return NoData((), "there is no healthy past of this engine to compare with")
    if len(case.twins) < fleet.QUORUM:
        return NoData((), "there is one twin and no healthy past: of two engines that differ, neither is the measure of the other")
    measured = fleet.measure(case.window, case.twins, case.host_dry, limit.tokens)
    if measured is None:
        return NoData((), f"fewer than {fleet.QUORUM} of its {len(case.twins)} twins carry a load that can be compared")
    over = measured.excess
    expected = over.now * (1.0 - over.share.mid)
    slower = over.now / max(expected, 1e-9) - 1.0
    return _Reference(
        measured.twin,
        over,
        measured.tokens_ratio,
        expected,
        f"{expected * 1e3:.1f} ms of its {measured.twins} twins at this load",
        f"steps take {over.now * 1e3:.1f} ms: {slower:.0%} slower than its {measured.twins} twins at the same load",
    )


def _would_tell(case: Case) -> str:
    """The evidence that would name the cause; why the step time itself names no card, if that is because it cannot."""
    hidden = f". {case.card.why}" if isinstance(case.card, slow_card.Unidentified) else ""
    if case.window.has(signals.CARD_CLOCK, signals.CARD_THERMAL):
        told = "what changed on all cards alike at the onset: no card stands out by clocks or throttle reasons; a deploy, a driver, a limit"
        return told + hidden
    return (
        "the cards' own pages (--hardware URL of dcgm-exporter): DCGM_FI_DEV_SM_CLOCK, _CLOCKS_EVENT_REASONS, _XID_ERRORS,"
        " _ECC_DBE_VOL_TOTAL, _NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL; who waits for whom in dispatch (DeepXTrace); and expert balancedness"
        " if it is not reported" + hidden
    )
