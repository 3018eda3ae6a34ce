"""A window cut into blocks: what must hold in all of them persists, what holds in one of them was an event. Pure."""

from __future__ import annotations

import numpy as np

from collector.model import FloatArray, Window
from diagnose.lockstep import BLOCK_S


def count(window: Window, seconds: float = BLOCK_S) -> int:
    """Blocks of at least `seconds` in a window, at least one and at most its intervals."""
    return max(1, min(int((window.end - window.start) // seconds), len(window.edges) - 1))


def means(window: Window, signal: str, seconds: float = BLOCK_S) -> FloatArray:
    """(R, B) a signal's mean in each of the B blocks of at least `seconds`; NaN where nothing was observed in a block.

    B is 1 for a window that is too short for two blocks.
    """
    values = window.get(signal)
    columns = values.shape[1]
    parts = count(window, seconds)
    if not columns:
        return np.full((len(values), 1), np.nan)
    starts = np.linspace(0, columns, parts, endpoint=False).astype(np.intp)
    seen = np.isfinite(values)
    held = np.add.reduceat(seen, starts, axis=1, dtype=np.int64)
    total = np.add.reduceat(np.where(seen, values, 0.0), starts, axis=1)
    return np.where(held > 0, total / np.maximum(held, 1), np.nan)
