"""Readings, what a store makes of them, and what its windows say."""

from __future__ import annotations

import numpy as np

from collector import signals
from collector.model import Facts, Problem, Reading, Source, Window
from collector.store import Store

LOADS, METRICS, INFO = Source.SGLANG_LOADS, Source.SGLANG_METRICS, Source.SGLANG_SERVER_INFO
STEPS, PAIRS, RUNNING, AGE = signals.STEPS_ACTIVE, signals.ATTENTION_PAIRS, signals.RUNNING, signals.SNAPSHOT_AGE


def reading(
    arrived: float,
    values: dict[str, dict[int, float]],
    *,
    source: Source = METRICS,
    node: str = "http://a:1",
    ages: dict[int, float] | None = None,
    speakers: dict[int, int] | None = None,
    problems: tuple[Problem, ...] = (),
) -> Reading:
    ranks = {rank for found in values.values() for rank in found}
    times = {rank: arrived - (ages or {}).get(rank, 0.0) for rank in ranks}
    return Reading("e", node, source, arrived, times, values, Facts(), problems, speakers or {})


def store(*readings: Reading) -> Store:
    made = Store("e", "sglang")
    for one in readings:
        made.feed(one)
    return made


def whole(made: Store, step: float | None = None) -> Window:
    return made.window(-np.inf, np.inf, step)


def said(window: Window) -> str:
    return "\n".join(map(str, window.problems))


def increase(window: Window, signal: str) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """(R,) integral of a rate over the window."""
    total: np.ndarray[tuple[int], np.dtype[np.float64]] = (window.get(signal) * np.diff(window.edges)).sum(axis=1)
    return total
