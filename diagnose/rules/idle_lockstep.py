"""A few requests keep all ranks stepping.

What it detects: most ranks run most of their steps for nothing, because fewer requests are there than ranks and one rank must decode.
Why it matters: an idle rank's step costs its card as much time as a busy one's; the cards are burnt, the requests are not slower for it.
Not this rule: many requests on one rank (`request_count_skew`); one drained rank; a group that stands still between requests.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from collector import promql, signals
from collector.model import Clock
from diagnose import blocks, lockstep, sums
from diagnose.confidence import confidence
from diagnose.model import Class, Evidence, Finding, Healthy, NoData, Severity, Share
from diagnose.rules import Threshold, rule

if TYPE_CHECKING:
    from collector.model import Window
    from diagnose.case import Case
    from diagnose.rules import Limits

NEEDS = (signals.STEPS_ACTIVE, signals.STEPS_IDLE, signals.RUNNING)


@rule(
    klass=Class.LOAD,
    severity=Severity.NOTE,
    remedy="Send this traffic to fewer or smaller engines and drain this one while it lasts; in a fleet, scale in by requests per rank"
    " (SGLang --max-running-requests and vLLM --max-num-seqs bound what one engine takes).",
    needs=(*NEEDS, signals.DECODE_STEPS),
    burnt=Threshold(
        0.5,
        "of all ranks' steps",
        "above one half the requests fit on half of the ranks; healthy chat idles in 0.00, one drained rank of 8 adds 0.125",
    ),
    stepping=Threshold(
        0.5, "of wall time", "below one half the cards stand still more than they step; two requests on one rank of 8 kept 1.00 of it"
    ),
)
def idle_lockstep(case: Case, limit: Limits) -> Finding | Healthy | NoData:
    window = case.window
    if window.engine.clock is Clock.NONE:
        return Healthy("the ranks have no common clock: none steps for another")
    if missing := window.missing(*NEEDS):
        return NoData(missing, "which ranks step for nothing was not counted")
    rate, steps, running = lockstep.group_rate(window), lockstep.steps_per_second(window), window.mean(signals.RUNNING)
    if rate is None or case.step_time is None:
        return NoData((), "the group took no steps: nobody is kept stepping")
    if not case.long_enough:
        return NoData((), "the window is too short to show that ranks stay idle")
    known = np.isfinite(steps) & (steps > lockstep.LEAST_RATE)
    idle = np.where(known, window.mean(signals.STEPS_IDLE) / np.where(known, steps, 1.0), np.nan)
    burnt, stepping, requests = float(np.mean(idle[known])), min(1.0, rate * case.step_time), sums.total(running)
    if burnt >= 1.0 or window.engine.facts.role == "prefill":
        return Healthy("no rank had a request to decode")
    if not burnt > limit.burnt:
        return Healthy(f"{burnt:.0%} of all ranks' steps are idle")
    if stepping < limit.stepping:
        return Healthy(f"the group steps only {stepping:.0%} of the time: it stands still between requests")
    if requests >= len(window.ranks):
        return Healthy(f"{requests:.0f} requests are there for {len(window.ranks)} ranks: if ranks idle, it is how they are dealt")
    if case.baseline is not None and burnt < (before := _worst(case.baseline)):
        return Healthy(
            f"{burnt:.0%} of all ranks' steps are idle; for some seconds of the past it was {before:.0%}: so this engine is used"
        )
    rows = tuple(int(k) for k in np.flatnonzero(idle < limit.burnt))
    weakened = window.missing(signals.DECODE_STEPS, signals.DECODE_TIME)
    return Finding(
        ranks=case.rank_ids(rows),
        share=Share(burnt, burnt, burnt),
        share_of="the cards' steps",
        confidence=confidence(burnt, limit.burnt / 2, missing=len(weakened)),
        summary=f"{requests:.1f} requests keep {len(window.ranks)} ranks stepping: {burnt:.0%} of the cards' steps are idle;"
        " that is cards' time, no request is slower for it",
        evidence=tuple(
            Evidence(
                signal=signals.STEPS_ACTIVE,
                what=f"rank {window.ranks[k]} has work in {1.0 - idle[k]:.0%} of the steps, with {running[k]:.1f} requests",
                observed=1.0 - float(idle[k]),
                expected=None,
                unit="of steps",
                rank=window.ranks[k],
                promql=promql.ACTIVE_SHARE,
            )
            for k in (rows or (lockstep.highest(-idle),))[:8]
        ),
        would_tell="requests per second over a day: whether this is the night's trough or what the engine is used for",
        weakened_by=weakened,
    )


def _worst(past: Window) -> float:
    """The largest idle share of all ranks' steps in a block of the past."""
    idle, active = blocks.means(past, signals.STEPS_IDLE), blocks.means(past, signals.STEPS_ACTIVE)
    steps = idle + active
    known = np.isfinite(steps) & (steps > lockstep.LEAST_RATE)
    shares = lockstep.nanmean(np.where(known, idle / np.where(known, steps, 1.0), np.nan).T)
    most = lockstep.most(shares)
    return most if np.isfinite(most) else 0.0
