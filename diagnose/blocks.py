"""A window cut into blocks: what must hold in all of them persists, what holds in one of them was an event. Pure."""

from __future__ import annotations

import numpy as np

from collector.model import FloatArray, Window, once_a_window
from diagnose import sums
from diagnose.lockstep import BLOCK_S


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
