"""Which rank the tokens reach late in the experts' dispatch, and which rank is itself late. Pure."""

from __future__ import annotations

import numpy as np

from collector import signals
from collector.model import Window
from diagnose import sums
from diagnose.model import Evidence
from diagnose.rules import Threshold

THRESHOLDS = {
    "ratio": Threshold(
        2.0,
        "x the node's other ranks",
        "in a recorded 16-rank matrix with one late rank the 15 others wait 0.82 to 1.26 times as long as their node's ranks for the same"
        " senders, and are waited for 0.67 to 1.43 times as long; the late one is waited for 5.2 times as long",
    )
}


def late_senders(window: Window, ratio: float) -> tuple[int, ...]:
    """Rows of the ranks for which all others wait: late with their own work, and no matter of dispatch."""
    awaited = sums.zeroed(window.mean(signals.DISPATCH_AWAITED))
    return tuple(int(k) for k in np.flatnonzero(awaited >= ratio))


def awaited(window: Window, rows: tuple[int, ...]) -> tuple[Evidence, ...]:
    """How much longer the others wait for these ranks than for their node's others."""
    times = window.mean(signals.DISPATCH_AWAITED)
    return tuple(
        Evidence(
            signal=signals.DISPATCH_AWAITED,
            what=f"the others wait {times[k]:.1f} times as long for the tokens of rank {window.ranks[k]} as for its node's others",
            observed=float(times[k]),
            expected=1.0,
            unit="ratio",
            rank=window.ranks[k],
            threshold=THRESHOLDS["ratio"].value,
        )
        for k in rows[:8]
    )


def queued(window: Window, ratio: float) -> tuple[int, ...]:
    """Rows of the ranks that wait longer than their node's others for the same senders, without being late themselves."""
    waits = sums.zeroed(window.mean(signals.DISPATCH_WAIT))
    late = late_senders(window, ratio)
    return tuple(int(k) for k in np.flatnonzero(waits >= ratio) if k not in late)
