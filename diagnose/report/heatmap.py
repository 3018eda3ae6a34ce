"""A rank x time array as the shapes of a heat map: rows, colours, what was not observed, legend. Pure: numbers in, strokes out.

A colour is drawn as one path of horizontal strokes on a grid of unit cells, so that a map costs about ten bytes a run of equal cells.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from collector.model import FloatArray
from diagnose.lockstep import nanmean
from diagnose.report.panels import Panel
from diagnose.report.plain import quantity

MOST_ROWS = 32
"""Rows of a map: what fits a screen beside the table, which stops at the same number. More ranks share rows."""

MOST_NAMED = 8
"""Culprits that get a row of their own above shared rows: as many as the verdict names one by one."""

MOST_COLUMNS = 96
"""Columns of a map: seven pixels each at the width of the page, still told apart. More intervals share columns."""

CLIP = 98.0
"""Percentile of the values at which the scale ends: one burst must not make everything else the same dark."""

FAR = 1.5
"""Times the CLIP percentile beyond which a value is a burst: below it, ending the scale there would hide nothing but noise."""

# Cividis (Nunez, Anderton and Renslow 2018): rises evenly in lightness and looks the same to colour-blind eyes and on grey paper.
_CIVIDIS = ("00224e", "123570", "3b496c", "575d6d", "707173", "8a8678", "a59c74", "c3b369", "e1cc55", "fee838")
LEVELS = 15
"""Colours of a map: finer steps are not told apart by eye, coarser ones hide a slope. Odd, so that the usual value of a level group, half
of its scale, lies in the middle of a colour and does not flicker between two."""


@dataclass(frozen=True, slots=True)
class Row:
    """One row: its label, and its mean over the window in words."""

    label: str
    mean: str
    culprit: bool


@dataclass(frozen=True, slots=True)
class Stroke:
    """All cells of one colour, as the data of an SVG path on unit cells."""

    colour: str
    path: str


@dataclass(frozen=True, slots=True)
class HeatMap:
    """Everything that the template draws."""

    title: str
    caption: str
    rows: tuple[Row, ...]
    columns: int
    strokes: tuple[Stroke, ...]
    unseen: str  # path of the cells that were not observed
    palette: tuple[str, ...]
    low: str
    high: str
    absent: tuple[str, ...]  # signals to name when nothing was observed
    drawn: bool


def palette() -> tuple[str, ...]:
    """LEVELS colours from dark (nothing) to bright (most)."""
    stops = np.array([[int(stop[k : k + 2], 16) for k in (0, 2, 4)] for stop in _CIVIDIS], dtype=np.float64)
    at = np.linspace(0.0, len(stops) - 1.0, LEVELS)
    mixed = [np.interp(at, np.arange(len(stops)), stops[:, k]).round().astype(int) for k in range(3)]
    return tuple(f"#{r:02x}{g:02x}{b:02x}" for r, g, b in zip(*mixed, strict=True))


def heat_map(panel: Panel, ranks: Sequence[int], culprits: frozenset[int]) -> HeatMap:
    """The map of a panel whose array rows are `ranks`."""
    finite = np.where(np.isfinite(panel.values), panel.values, np.nan)
    groups = _rows(ranks, culprits)
    values = _columns(
        np.array([_combined(finite[list(rows)], low=panel.low_is_telling) for rows in groups]).reshape(len(groups), finite.shape[1])
    )
    seen = values[np.isfinite(values)]
    drawn = bool(len(seen))
    peak = float(seen.max()) if drawn else 0.0
    top = _top(seen, panel.least_top)
    colours = palette()
    level = np.where(np.isfinite(values), np.clip(np.nan_to_num(values) / top * LEVELS, 0, LEVELS - 1), -1).astype(int)
    strokes = tuple(Stroke(colour, path) for k, colour in enumerate(colours) if (path := _path(level == k)))
    return HeatMap(
        title=panel.title,
        caption=panel.caption + _sharing(ranks, groups, low=panel.low_is_telling),
        rows=tuple(_row(rows, ranks, culprits, panel) for rows in groups),
        columns=values.shape[1],
        strokes=strokes,
        unseen=_path(level < 0),
        palette=colours,
        low=quantity(0.0, panel.unit),
        high=("≥ " if peak > top else "") + quantity(top, panel.unit),
        absent=panel.absent,
        drawn=drawn,
    )


def _top(seen: FloatArray, least: float) -> float:
    """Where the scale ends: at the largest value unless a few stand far above all others."""
    if not len(seen):
        return 1.0
    usual, peak = float(np.percentile(seen, CLIP)), float(seen.max())
    return max(peak if peak <= FAR * usual else usual, least, 1e-12)


def _rows(ranks: Sequence[int], culprits: frozenset[int]) -> list[tuple[int, ...]]:
    """Which array rows share a row of the map: each its own, or of many ranks the culprits first and then neighbours together."""
    if len(ranks) <= MOST_ROWS:
        return [(k,) for k in range(len(ranks))]
    named = [(k,) for k, rank in enumerate(ranks) if rank in culprits][:MOST_NAMED]
    size = math.ceil(len(ranks) / MOST_ROWS)
    return [*named, *(tuple(range(k, min(k + size, len(ranks)))) for k in range(0, len(ranks), size))]


def _combined(ranks: FloatArray, *, low: bool) -> FloatArray:
    """One line of several ranks: the telling extreme of each interval, so that one bad rank among many is not averaged away."""
    extreme: FloatArray = np.fmin.reduce(ranks, axis=0) if low else np.fmax.reduce(ranks, axis=0)
    return extreme


def _columns(values: FloatArray) -> FloatArray:
    """At most MOST_COLUMNS columns, each the mean of the intervals that it stands for."""
    if values.shape[1] <= MOST_COLUMNS:
        return values
    return np.stack([nanmean(part) for part in np.array_split(values, MOST_COLUMNS, axis=1)], axis=1)


def _row(rows: tuple[int, ...], ranks: Sequence[int], culprits: frozenset[int], panel: Panel) -> Row:
    mean = float(_combined(panel.means[list(rows)], low=panel.low_is_telling))
    first, last = ranks[rows[0]], ranks[rows[-1]]
    label = f"rank {first}" if first == last else f"{first}\N{EN DASH}{last}"
    written = quantity(mean, panel.unit) if math.isfinite(mean) else "\N{EN DASH}"
    return Row(label, written, culprit=len(rows) == 1 and first in culprits)


def _sharing(ranks: Sequence[int], groups: Sequence[tuple[int, ...]], *, low: bool) -> str:
    size = max(map(len, groups), default=1)
    if size == 1:
        return ""
    return (
        f" {len(ranks):,} ranks: a row shows the {'least' if low else 'largest'} of {size} neighbours; culprits stand above on their own."
    )


def _path(cells: np.ndarray) -> str:
    """Horizontal strokes over all runs of True cells; the stroke's middle is at the row's number, its width one row."""
    parts = []
    for y, line in enumerate(cells):
        flips = np.flatnonzero(np.diff(np.concatenate(([0], line.astype(np.int8), [0]))))
        parts += [f"M{start} {y}h{end - start}" for start, end in zip(flips[::2], flips[1::2], strict=True)]
    return "".join(parts)
