"""Is a rank late because of what it holds? Host waits against attention work, on the window at hand. Pure.

By SGLang's default the exchange waits for hosts alone, and pairs lengthen everybody's step instead. With the overlap off, or the exchange
on the device group, waits hold device time too: then they follow pairs, and the rank with most pairs looks like a late host.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from collector import signals
from collector.model import Window, once_a_window
from diagnose import attribution, lockstep

FOLLOWS = 0.6
"""Correlation from which waits count as following pairs: pairs then explain a third of them or more. In virtual time, where they do not,
1,198 windows of nine intervals reach 0.51, windows of five minutes 0.09 (tuning seeds)."""

LEAST = 8
"""Intervals: with fewer, a correlation of 0.6 is chance once in ten."""

VARIES = 0.05
"""Least spread of pairs beyond what ranks and moments have in common, of the mean: below it nothing can follow them."""

EXPERIMENT = "this rank also holds far more than its peers: move some of it away and see whether the wait follows"


@dataclass(frozen=True, slots=True)
class Tie:
    """How host waits depend on pairs: the correlation, and seconds of lateness per pair."""

    correlation: float
    slope: float

    @property
    def follows(self) -> bool:
        return self.correlation >= FOLLOWS


@once_a_window
def tie(window: Window) -> Tie | None:
    """Waits against pairs, cleared of each rank's and each moment's own level; None when pairs do not vary enough to tell."""
    rate = lockstep.group_rate(window)
    if rate is None:
        return None
    wait = (window.get(signals.SYNC_WAIT) + (window.get(signals.RECV_WAIT) if window.has(signals.RECV_WAIT) else 0.0)) / rate
    pairs = attribution.decode_pairs(window)
    usable = np.isfinite(wait).all(axis=0) & np.isfinite(pairs).all(axis=0)
    if np.count_nonzero(usable) < LEAST or len(pairs) < 2:
        return None
    late, held = (v - v.mean(axis=0) - v.mean(axis=1, keepdims=True) + v.mean() for v in (-wait[:, usable], pairs[:, usable]))
    square = float((held * held).sum())
    if not np.sqrt(square / held.size) > VARIES * float(pairs[:, usable].mean()):
        return None
    together, spread = float((late * held).sum()), float((late * late).sum())
    return Tie(together / np.sqrt(square * spread) if spread > 0 else 0.0, together / square)
