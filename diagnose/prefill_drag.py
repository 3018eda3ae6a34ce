"""What prefill on all ranks in turn costs the decodes of the whole group: how many steps it touches, and how much longer they last. Pure.

A step in which any rank prefills lasts T_p on all ranks and takes the CUDA graph from those that decode; the others last T_d. Of a rank's
decode passes the share g is touched by a prefill elsewhere, so its mean decode step is c = (1 - g) T_d + g T_p.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from collector import signals
from collector.model import Window, once_a_window
from diagnose import blocks, graphs, lockstep, over_past, sums
from diagnose.model import Share
from diagnose.rules import Limits, Threshold

NEEDS = (
    signals.STEPS_ACTIVE,
    signals.STEPS_IDLE,
    signals.GRAPH_STEPS,
    signals.EAGER_STEPS,
    signals.DECODE_STEPS,
    signals.DECODE_TIME,
)

THRESHOLDS = {
    "share": Threshold(
        0.10,
        "of step time",
        "three times what healthy windows differ by, 0.031 (healthy_spread.py); a group-wide claim has no peers to check it",
    ),
    "touched": Threshold(
        0.10,
        "of the group's steps more than in the past",
        "healthy chat differs by up to 0.043 (healthy_spread.py); faults added 0.13 to 0.76",
    ),
    "tokens": Threshold(
        2.0,
        "x the most prompt tokens of the past",
        "the middle 3 s of a window over the worst 10 s of the past: at most 1.67 when healthy (healthy_spread.py, agent); faults 3.8",
    ),
    "great": Threshold(
        0.40,
        "of step time, and of the group's steps more than in the past",
        "healthy windows of calm traffic reached 0.36 of step time, 0.41 of the steps (rag, seeds 4 to 15); faults 0.47, 0.43",
    ),
    "steady": Threshold(
        1.4,
        "x the most prompt tokens of the past, of a great cost and a calm past",
        "the same healthy windows reached 1.36 with a cost half as great; faults 1.45 to 1.96",
    ),
    "calm": Threshold(
        0.4,
        "of the mean, deviation of prompt tokens in the past's blocks of 3 s",
        "below it half a minute shows what the traffic does (diurnal 0.32, rag 0.37 beside faults); agents and bursts have 0.5 to 1",
    ),
    "each": Threshold(
        1.2,
        "x the past's prompt tokens per first token",
        "bursts of a traffic's own requests had up to 1.13 (bursty, seeds 0 to 15), longer prompts on all ranks 1.2 to 17",
    ),
    "lead": Threshold(
        2.5, "x the peers' prefill time", "the limit from which it is one rank's doing; prompts dealt to all in turn gave at most 1.86"
    ),
    "apart": Threshold(
        2.5,
        "x the past's most uneven prefill",
        "prompts dealt to all in turn, where they cost by being uneven, left a rank at most 0.9 times as far above as before (seeds 0"
        " to 2, six traffics), long prompts on one that were taken for such 3.9 and 7",
    ),
    "alone": Threshold(
        0.30,
        "of step time, without a past",
        "chat loses at most 0.07 (healthy_spread.py); questions about documents lose half, and that is so",
    ),
}

UNCOMPARED = 0.6
"""Confidence at most without a past: the plain step is then an estimate from mixed steps. Not calibrated."""

OVERSTATED = 1.5
"""Times by which the window's own plain step overstates the drag: 1.3 to 1.6 on faults whose past tells it, as the longest prefill steps
are those in which several ranks prefill, and are then counted for each."""

CROWDED = 0.8
"""Share of touched decode passes above which the plain step is not to be seen: it would be a difference divided by less than 0.2."""


@dataclass(frozen=True, slots=True)
class PrefillDrag:
    """The steps with a prefill anywhere in the group."""

    touched: float  # share of the group's steps
    prefill_step: float  # s, mean step with a prefill
    plain_step: float | None  # s, mean step without; None when there are too few
    wall_step: float  # s, mean of all

    def share(self, plain: float | None = None) -> float | None:
        """Share of step time by which prefill lengthens the steps, against `plain` seconds (None: the window's own plain step)."""
        usual = self.plain_step if plain is None else plain
        if usual is None:
            return None
        return min(1.0, max(0.0, self.touched * (self.prefill_step - usual) / self.wall_step))


@once_a_window
def prefill_drag(window: Window) -> PrefillDrag | None:
    """The drag of a window; None when steps, passes or decode times were not observed, or no rank prefilled."""
    rate, eager, bound = lockstep.group_rate(window), graphs.eager_share(window), graphs.prefill_touched(window)
    cadence = lockstep.cadence(window)
    if rate is None or eager is None or bound is None or cadence is None:
        return None
    passes = window.mean(signals.EAGER_STEPS) + window.mean(signals.GRAPH_STEPS)
    prefills = np.maximum(window.mean(signals.STEPS_ACTIVE) - passes, 0.0)
    count, time = window.mean(signals.DECODE_STEPS), window.mean(signals.DECODE_TIME)
    usable = np.isfinite(prefills) & np.isfinite(time) & np.isfinite(count) & (count > lockstep.LEAST_RATE)
    if not usable.any() or not prefills[usable].sum() > lockstep.LEAST_RATE:
        return None
    decode_step = time[usable] / count[usable]
    # what a rank does not spend in decode and idle steps, it spends in its own prefill steps
    left = np.maximum(0.0, 1.0 - (passes + sums.zeroed(window.mean(signals.STEPS_IDLE)))[usable] * decode_step)
    prefill_step = float(left.sum() / prefills[usable].sum())
    own = float(prefills[usable].mean() / rate)
    touched = min(bound, 1.0, eager + own)  # graphs that are lost for another reason touch no more steps than there are prefills
    passed = min(1.0, max(0.0, (touched - own) / max(1.0 - own, 1e-9)))
    plain = (cadence - passed * prefill_step) / (1.0 - passed) if passed < CROWDED else None
    return PrefillDrag(touched, prefill_step, None if plain is None else min(cadence, max(0.0, plain)), 1.0 / rate)


@dataclass(frozen=True, slots=True)
class Growth:
    """What prefill costs more than in the past."""

    share: Share  # of step time
    touched: float  # share of the group's steps more than in the past
    tokens: float  # prompt tokens computed in the median block of the window over the most in a stretch of the past as long as the window
    scatter: float  # deviation of the prompt tokens in blocks of the past, of their mean
    each: float  # prompt tokens per first token, over the past's; NaN where first tokens were not counted


def growth(window: Window, baseline: Window | None, excess: over_past.Excess | None, leaders: float) -> Growth | None:
    """The growth over `baseline`; None without a past, or without what prices it.

    `leaders`: the share of step time that an excess of means has already put down to the rank that prefills most; one of a fit has put all
    that the load takes more down to it.
    """
    now, before = prefill_drag(window), prefill_drag(baseline) if baseline is not None else None
    usual = lockstep.cadence(baseline) if baseline is not None else None
    tokens = blocks.means(window, signals.PREFILL_TOKENS)
    if now is None or baseline is None or usual is None or excess is None or not np.isfinite(tokens).any():
        return None
    by_steps = now.share(usual) or 0.0
    more = leaders if excess.by_load is None else excess.by_load
    by_past = min(1.0, max(0.0, excess.share.mid + more))
    mid = min(by_steps, by_past)
    most, scatter = _past_prompts(baseline, window.end - window.start)
    return Growth(
        Share(mid, min(mid, max(0.0, excess.share.low + more)), max(by_steps, by_past)),
        now.touched - (before.touched if before is not None else 0.0),
        lockstep.median(sums.by_column(tokens)) / most,
        scatter,
        longer(window, baseline),
    )


def longer(window: Window, past: Window) -> float:
    """Prompt tokens computed per request that got its first token, over the past's; NaN when either was not counted."""
    return _each(window) / _each(past)


@once_a_window
def _each(window: Window) -> float:
    tokens, count = sums.total(window.mean(signals.PREFILL_TOKENS)), sums.total(window.mean(signals.FIRST_TOKENS))
    if not window.has(signals.PREFILL_TOKENS, signals.FIRST_TOKENS) or not tokens > 0:
        return float("nan")
    return float(tokens / count) if count > lockstep.LEAST_RATE else float("inf")


@once_a_window
def _past_prompts(past: Window, seconds: float) -> tuple[float, float]:
    """The most prompt tokens per second in a stretch of a past of at least `seconds`, and their deviation in its blocks, of their mean."""
    most = max(float(sums.by_column(blocks.means(past, signals.PREFILL_TOKENS, seconds)).max()), lockstep.LEAST_RATE)
    values = sums.by_column(blocks.means(past, signals.PREFILL_TOKENS))
    mean = lockstep.average(values)
    return most, float(np.std(values, ddof=1)) / mean if len(values) > 1 and mean > 0 else float("inf")


def grew(grown: Growth, limit: Limits) -> bool:
    """Whether prefill grew enough to explain longer steps, in cost, in steps and in work: so no other slowness counts. Less work is enough
    where it costs much and the past was calm."""
    if grown.share.mid < limit.share or grown.touched < limit.touched:
        return False
    return grown.tokens >= limit.tokens or (grown.scatter <= limit.calm and may(grown, limit))


def may(grown: Growth, limit: Limits) -> bool:
    """Whether prefill costs so much more than in the past that it is no matter of course, whatever the past was like."""
    return min(grown.share.mid, grown.touched) >= limit.great and grown.tokens >= limit.steady
