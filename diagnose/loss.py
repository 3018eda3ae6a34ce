"""The share of step time that a group loses, and what of it stood in its healthy past. Pure."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from collector import signals
from collector.model import Window, once_a_window
from diagnose import blocks, change
from diagnose.case import Case

_PRICES = (signals.DECODE_TIME, signals.DECODE_STEPS, signals.STEPS_ACTIVE, signals.STEPS_IDLE)
"""What tells how much longer than a decode step a prefill step takes."""


def measured(case: Case) -> float | None:
    """Share of step time lost to host waits, uneven attention, uneven prefill and unexplained excess; None when none of them is known."""
    parts = [
        case.host_dry.mid if case.host_dry else None,
        case.pair_load.lost.mid if case.pair_load and case.pair_load.lost else None,
        case.prefill_load.lost.mid if case.prefill_load else None,
        max(0.0, case.excess.share.mid) if case.excess else None,
    ]
    known = [p for p in parts if p is not None]
    return sum(known) if known else None


def usual(case: Case) -> float:
    """The most that a stretch of the healthy past, as long as the window, lost: agents' prompts lose a sixth without a fault.

    0 without a past, or where what prices uneven prefill was not read: what cannot be measured clears nothing. A rank that hardly decodes
    beside its prompts shows no price either, in the past as now."""
    past, load = case.baseline, case.prefill_load
    if past is None or (load is not None and load.lost.low <= 0.0 < load.lost.mid and case.window.missing(*_PRICES)):
        return 0.0
    return _worst(past, case.window.end - case.window.start)


@once_a_window
def _worst(past: Window, seconds: float) -> float:
    """The most that is lost in a part of a past of at least `seconds`."""
    parts = blocks.count(past, seconds)
    edges = np.linspace(0, len(past.edges) - 1, parts + 1).astype(int).tolist()
    return max(measured(Case(change.columns(past, start, stop))) or 0.0 for start, stop in pairwise(edges))
