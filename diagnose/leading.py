"""Whether one rank stands out interval after interval, and not only in the mean. Pure."""

from __future__ import annotations

import numpy as np

from collector.model import FloatArray


def leads(values: FloatArray, row: int) -> float:
    """Share of the intervals of (R, T) `values` in which `row` is above every other row; 0 when no two ranks were observed at once."""
    others = np.delete(values, row, axis=0)
    known = np.isfinite(values[row]) & np.isfinite(others).any(axis=0)
    if not known.any():
        return 0.0
    return float((values[row, known] > np.nanmax(others[:, known], axis=0)).mean())
