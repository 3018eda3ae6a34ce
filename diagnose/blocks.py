"""A window cut into blocks: what must hold in all of them persists, what holds in one of them was an event. Pure."""

from __future__ import annotations

import numpy as np

from collector.model import FloatArray, Window, once_a_window
from diagnose import sums
from diagnose.lockstep import BLOCK_S

SPEAKS = 4
"""Stretches of a past, as long as the window, from which the least that any rank had in them is what the traffic does at the least: in 3
stretches of ten seconds two of 96 healthy windows (rag) found less in their caches by 0.3, in 4 of thirty none of 576 (six traffics)."""


def count(window: Window, seconds: float = BLOCK_S) -> int:
    """Blocks of at least `seconds` in a window, at least one and at most its intervals."""
    return max(1, min(int((window.end - window.start) // seconds), len(window.edges) - 1))


@once_a_window
def means(window: Window, signal: str, seconds: float = BLOCK_S) -> FloatArray:
    """(R, B) a signal's mean in each of the B blocks of at least `seconds`; NaN where nothing was observed in a block.

    B is 1 for a window that is too short for two blocks.
    """
    values = window.get(signal)
    columns = values.shape[1]
    parts = count(window, seconds)
    if not columns:
        return np.full((len(values), 1), np.nan)
    return sums.by_part(values, parts)
