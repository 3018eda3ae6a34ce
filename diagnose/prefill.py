"""What one rank's prefill costs the ranks that decode. Pure.

While one rank runs a prefill step everybody's step lasts as long. Dealt evenly, the ranks would prefill in the same steps, so the group
would spend the mean instead of the maximum of the ranks' prefill time that way.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from collector import signals
from collector.model import FloatArray, Window
from diagnose import lockstep
from diagnose.model import Share

FEW = 0.02
"""Share of the group's steps below which prefill steps are too few to time: the difference of two large counts."""


@dataclass(frozen=True, slots=True)
class PrefillLoad:
    """Who prefills, and what that drags the others' decoding."""

    busy: FloatArray  # (R,) share of wall time in prefill steps
    leader: int  # row
    drag: float  # share of step time that the busiest rank's prefill adds to the group
    lost: Share  # share that dealing the same prefill evenly would give back


def prefill_load(window: Window) -> PrefillLoad | None:
    """The deal of prefill in a window; None when prefill time or the cadence was not observed."""
    busy = np.minimum(window.mean(signals.PREFILL_BUSY), 1.0)
    step_time = lockstep.cadence(window)
    if np.isfinite(busy).sum() < 2 or step_time is None:
        return None
    leader = int(np.nanargmax(busy))
    mid, low, high = _stretch(window, leader, float(busy[leader]))
    uneven = float(busy[leader] - np.nanmean(busy))
    lost = Share(uneven * mid, uneven * low, uneven * high)
    return PrefillLoad(busy, leader, float(busy[leader]) * mid, lost)


def _stretch(window: Window, leader: int, busy: float) -> tuple[float, float, float]:
    """Share of the leader's prefill step beyond a decode step: (mid, low, high).

    The leader's own decode moments hold only steps without its prefill: their mean is the plain decode step. The remaining steps of the
    group are its prefill steps.
    """
    rate = lockstep.group_rate(window)
    moments = window.mean(signals.DECODE_TIME)[leader], window.mean(signals.DECODE_STEPS)[leader]
    if rate is None or not np.isfinite(moments).all() or moments[1] < 0.05 * rate or moments[0] <= lockstep.LEAST_RATE:
        return 0.5, 0.0, 1.0  # it hardly decodes at all: only that the answer lies between nothing and everything is known
    plain = float(moments[0] / moments[1])
    steps = rate - (1.0 - busy) / plain  # per second
    if steps <= FEW * rate:
        return 0.5, 0.0, 1.0
    mid = min(1.0, max(0.0, 1.0 - plain * steps / busy))
    return mid, 0.5 * mid, min(1.0, 1.5 * mid)
