"""The other two drawings of the report: step time through time as a line, lost time by cause as a bar. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from collector.model import FloatArray
from diagnose.model import LostTime
from diagnose.report.plain import percent, quantity, safe, utc

WIDTH, HEIGHT = 720, 110
"""Of the plotted area, in the units of the drawing: as wide as a heat map, so that times lie below each other."""

MOST_POINTS = 240
"""Points of a line: three units apart, closer ones cover each other."""

# Okabe and Ito 2008: told apart by colour-blind eyes; the legend gives the same order, so that grey paper is enough.
_CAUSES = ("#d55e00", "#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#f0e442")
_UNEXPLAINED = "#8a8f98"

LEAST_PART = 0.0005
"""Share of step time that would be written as 0.0%."""

DAY = 86_400.0


@dataclass(frozen=True, slots=True)
class Tick:
    """A mark on an axis: where, and what it says."""

    at: float
    text: str


@dataclass(frozen=True, slots=True)
class Line:
    """A line through time; a gap in the observations is a gap in the line."""

    segments: tuple[str, ...]  # points of polylines
    dots: tuple[tuple[float, float], ...]  # observations without a neighbour
    ticks: tuple[Tick, ...]
    drawn: bool


@dataclass(frozen=True, slots=True)
class Part:
    """One cause's part of the bar, in the units of the drawing."""

    cause: str
    colour: str
    start: float
    width: float
    share: str


def line(values: FloatArray, unit: str) -> Line:
    """A (T,) series from zero up, so that a rise looks as large as it is."""
    values = np.where(np.isfinite(values), values, np.nan)
    if len(values) > MOST_POINTS:
        values = np.array([_mean(part) for part in np.array_split(values, MOST_POINTS)])
    seen = np.isfinite(values)
    if not seen.any():
        return Line((), (), (), drawn=False)
    top = _round_up(float(values[seen].max()))
    x = (np.arange(len(values)) + 0.5) * WIDTH / len(values)
    y = HEIGHT * (1.0 - np.clip(values, 0.0, top) / top)
    flips = np.flatnonzero(np.diff(np.concatenate(([0], seen.astype(np.int8), [0]))))
    runs = [(int(a), int(b)) for a, b in zip(flips[::2], flips[1::2], strict=True)]
    segments = tuple(" ".join(f"{x[i]:.1f},{y[i]:.1f}" for i in range(a, b)) for a, b in runs if b - a > 1)
    dots = tuple((round(float(x[a]), 1), round(float(y[a]), 1)) for a, b in runs if b - a == 1)
    ticks = tuple(Tick(HEIGHT * (1.0 - share), quantity(top * share, unit)) for share in (0.0, 0.5, 1.0))
    return Line(segments, dots, ticks, drawn=True)


def _mean(values: FloatArray) -> float:
    seen = values[np.isfinite(values)]
    return float(seen.mean()) if len(seen) else math.nan


def _round_up(value: float) -> float:
    """The next of 1, 2, 4, 6, 8 times a power of ten above `value`: their halves are short numbers too."""
    if value <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return next((step * power for step in (1, 2, 4, 6, 8) if step * power >= value), 10 * power)


def bar(lost: LostTime, width: float) -> tuple[Part, ...]:
    """The causes of lost time, largest first and the unexplained last, on a bar whose whole length is all of step time."""
    causes = sorted(
        ((c, s) for c, s in lost.by_cause.items() if math.isfinite(s) and s >= LEAST_PART),
        key=lambda i: (i[0] == "unexplained", -i[1], i[0]),
    )
    whole = max(1.0, sum(share for _, share in causes))  # estimates of several causes may overlap
    parts, at = [], 0.0
    for k, (cause, share) in enumerate(causes):
        colour = _UNEXPLAINED if cause == "unexplained" else _CAUSES[k % len(_CAUSES)]
        length = share / whole * width
        parts.append(Part(safe(cause), colour, round(at, 1), round(length, 1), percent(share)))
        at += length
    return tuple(parts)


def times(edges: FloatArray) -> tuple[Tick, ...]:
    """Clock times at the start, the quarters and the end of a window, UTC."""
    if len(edges) < 2:
        return ()
    start, span = float(edges[0]), float(edges[-1] - edges[0])
    return tuple(Tick(WIDTH * part, _clock(start + span * part, days=span >= DAY)) for part in (0.0, 0.25, 0.5, 0.75, 1.0))


def _clock(seconds: float, *, days: bool) -> str:
    text = utc(seconds)
    return text if not text[:1].isdigit() else text[5:16] if days else text[11:19]
