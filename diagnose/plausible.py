"""What a window can hold: values that no engine can have had are taken as not observed, and said so. Pure."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from collector import signals
from collector.model import FloatArray, Problem, Window, once_a_window

MOST = 1e15
"""Largest value of any signal that is believed: a card of 10 PB/s read at a byte a pair. Sums of squares of it stay finite."""

SIGNED = frozenset({signals.SNAPSHOT_AGE})
"""Signals that may be negative: an age is, by the engine's clock against ours."""


@once_a_window
def plausible(window: Window) -> Window:
    """The same window, without infinities and values below zero or above MOST; itself when there are none."""
    if not (window.edges[1:] > window.edges[:-1]).all():
        still = Problem(
            window.engine.id, "the window's times do not increase", "no interval of it is used; look at the clock of the reader"
        )
        return replace(window, edges=window.edges[:1], values={}, problems=(*window.problems, still))
    if not window.values or _fine(window):
        return window
    bad = {name: count for name, found in window.values.items() if (count := int(np.count_nonzero(_impossible(name, found))))}
    if not bad:
        return window
    values = {name: np.where(_impossible(name, found), np.nan, found) if name in bad else found for name, found in window.values.items()}
    said = tuple(
        Problem(window.engine.id, f"{count} values of {name} are negative, infinite or beyond {MOST:.0e}", "they are taken as not observed")
        for name, count in bad.items()
    )
    return replace(window, values=values, problems=(*window.problems, *said))


def _fine(window: Window) -> bool:
    """Whether nothing can be wrong, from all values together: as nearly always, and far cheaper than signal by signal."""
    everything = np.concatenate([found.ravel() for found in window.values.values()])
    return not everything.size or not (np.fmin.reduce(everything) < 0.0 or np.fmax.reduce(everything) > MOST)


def _impossible(name: str, found: FloatArray) -> npt.NDArray[np.bool_]:
    return (found < (-MOST if name in SIGNED else 0.0)) | (found > MOST)
