"""The share of step time that a group loses, and what of it stood in its healthy past. Pure."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from collector.model import Window, once_a_window
from diagnose import blocks, change
from diagnose.case import Case


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

    0 without a past, or where what uneven prefill costs is not known: what cannot be measured clears nothing."""
    past, load = case.baseline, case.prefill_load
    if past is None or (load is not None and load.lost.low <= 0.0 < load.lost.mid):
        return 0.0
    return _worst(past, case.window.end - case.window.start)


@once_a_window
def _worst(past: Window, seconds: float) -> float:
    """The most that is lost in a part of a past of at least `seconds`."""
    parts = blocks.count(past, seconds)
    edges = np.linspace(0, len(past.edges) - 1, parts + 1).astype(int).tolist()
    return max(measured(Case(change.columns(past, start, stop))) or 0.0 for start, stop in pairwise(edges))
