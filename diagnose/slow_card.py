"""Whose card is slow, read from who leads: at equal work the step is longer whenever that rank's pairs grow. Pure.

On level cards the cadence follows the busiest rank, C = c0 + s max_r P_r + load, whoever that is. With one slow card k the step ends when
*its* attention ends, C = c0 + s_k P_k + load, so the cadence follows P_k and no longer the maximum. Each rank's pairs, cleared of the
maximum and of the group's load, are therefore held against the cadence cleared of the same: only a slow card's leave a slope.
Step time is equal on all ranks; it is the *variation of who has how much* that tells. Without it nobody can be named, and the answer is
what would tell.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from collector import signals
from collector.model import FloatArray, Window
from diagnose import lockstep

MARGIN = 5.0
"""Standard errors by which a rank's slope must stand above zero and above its peers' median slope. Healthy and load-skewed windows of
virtual time reach 4.1 in 580 of them (benchmarks/slow_card.py, tuning seeds); a card at half its bandwidth has 6 to 29 in five minutes."""

RIVAL = 3.0
"""Standard errors that another rank's pairs may still show once those of the first are allowed for: of 7 peers one reaches this in 1 % of
windows by chance; of two slow cards the second does."""

HALF = 2.0
"""Standard errors that each half of the window must show by itself: one in forty by chance, and chance does not come twice on one rank."""

FOLLOWS = 0.4
"""Share of the cadence's dependence on pairs that must be on the one rank. In a healthy group the maximum takes all but 0.2, which is what
means over an interval miss of the steps' own maxima, and would grow significant in a window long enough."""

MIN_POINTS = 24
"""Intervals: twice the regressors in each half."""

NOISY = 0.05
"""Scatter of the cleared cadence, of step time, from which traffic drowns the answer: chat leaves 0.004 to 0.018, prompts of thousands of
tokens 0.1 to 0.4."""

LEADS = 0.9
"""Share of intervals in which one rank has most pairs, from which the leader counts as never changing."""

LAGS = 3
"""Intervals over which errors are taken to depend on each other: traffic's mix drifts within some seconds."""

OUTLYING = 4.0
"""Robust standard deviations from which an interval is left out, once: a pause of the group, a burst of prompts."""

EXPERIMENT = "clocks, throttle reasons and ECC errors of that card (dcgm-exporter), or move one long context: see whether the step follows"


@dataclass(frozen=True, slots=True)
class Panel:
    """What the estimate reads: (R, T) pairs, (T,) cadence in s, (K, T) load of the group that lengthens steps whoever leads."""

    pairs: FloatArray
    cadence: FloatArray
    load: FloatArray


@dataclass(frozen=True, slots=True)
class Named:
    """The rank whose card is slow: `slope` seconds per pair with its standard error, `clear` standard errors above its peers,
    `follows` of the cadence's dependence on pairs."""

    row: int
    slope: float
    error: float
    clear: float
    follows: float
    pairs: float  # its mean pairs per step


@dataclass(frozen=True, slots=True)
class Nobody:
    """The cadence follows whoever leads: no card stands apart."""

    why: str


@dataclass(frozen=True, slots=True)
class Unidentified:
    """The window cannot tell: why not, and what would."""

    why: str
    would_tell: str = EXPERIMENT


@dataclass(frozen=True, slots=True)
class _Slopes:
    """(R,) slope of the cleared cadence on each rank's cleared pairs and its standard error; `leader`: slope on the maximum beside it."""

    each: FloatArray
    error: FloatArray
    leader: FloatArray
    scatter: float  # s, of the cleared cadence

    @property
    def clear(self) -> FloatArray:
        """(R,) standard errors above zero, or above the peers' median where that is positive."""
        if len(self.each) < 3:
            return self.each / self.error
        return np.asarray((self.each - np.maximum(lockstep.peers_median(self.each), 0.0)) / self.error)


def panel(window: Window) -> Panel | None:
    """The intervals of a window in which all ranks' pairs, the cadence and the group's load were observed; None when a signal is missing
    or fewer than two ranks are there. Without prefill passes, prefill tokens alone stand for the group's prefill."""
    if not window.has(signals.RESIDENT_TOKENS, signals.DECODE_STEPS, signals.PREFILL_TOKENS, signals.RUNNING):
        return None
    cadence = lockstep.cadence_series(window)
    pairs = window.get(signals.RESIDENT_TOKENS)
    passes = window.get(signals.STEPS_ACTIVE) - window.get(signals.EAGER_STEPS) - window.get(signals.GRAPH_STEPS)
    # per second, not per step: a rate times the cadence would explain the cadence by itself
    rows = [window.get(signals.RUNNING).sum(axis=0), window.get(signals.PREFILL_TOKENS).sum(axis=0)]
    rows += [window.get(signals.PREFILL_BUSY).sum(axis=0)] if window.has(signals.PREFILL_BUSY) else []
    rows += [np.maximum(passes, 0.0).sum(axis=0)] if np.isfinite(passes).any() else []
    load = np.vstack(rows)
    usable = np.isfinite(cadence) & (cadence > 0) & np.isfinite(pairs).all(axis=0) & np.isfinite(load).all(axis=0)
    return Panel(pairs[:, usable], cadence[usable], load[:, usable]) if len(pairs) > 1 else None


def look(seen: Panel, usual: float | None = None) -> Named | Nobody | Unidentified:
    """Which rank's card is slow. `usual`: seconds that a pair costs on a card of this kind; None: what the leader's slope says."""
    if len(seen.cadence) < MIN_POINTS:
        return Unidentified(f"{len(seen.cadence)} intervals are too few to see whose pairs the step time follows", "read for five minutes")
    seen = _calm(seen)
    slopes = _slopes(seen)
    if slopes is None or slopes.scatter > NOISY * float(np.mean(seen.cadence)):
        return Unidentified("prompts move the step time so much that pairs cannot be seen in it")
    clear = slopes.clear
    row = int(np.argmax(clear))
    follows = float(slopes.each[row] / (slopes.each[row] + max(slopes.leader[row], 0.0))) if slopes.each[row] > 0 else 0.0
    if clear[row] < MARGIN or follows < FOLLOWS:
        return _nobody(seen, slopes, usual)
    if _rival(seen, row):
        return Unidentified(
            "the step time follows the pairs of more than one rank", "clocks and throttle reasons of all cards (dcgm-exporter)"
        )
    if not all(_shows(half, row) for half in _halves(seen)):
        return Unidentified("the two halves of the window do not name the same rank", "read for longer")
    slope, error = _own(seen, row)
    return Named(row, slope, error, float(clear[row]), follows, float(seen.pairs[row].mean()))


def _nobody(seen: Panel, slopes: _Slopes, usual: float | None) -> Nobody | Unidentified:
    """Nobody, if a card twice as slow would have shown on every rank."""
    leads = np.bincount(np.argmax(seen.pairs, axis=0), minlength=len(seen.pairs)) / seen.pairs.shape[1]
    if leads.max() >= LEADS:
        return Unidentified(
            f"one rank has most pairs in {leads.max():.0%} of the window: the leader never changes, and hides whose card it is"
        )
    cost = usual if usual is not None else lockstep.median(slopes.leader)
    if cost <= 0 or (slopes.error * MARGIN > cost).any():
        return Unidentified("pairs vary too little in this window for a slow card to show", "read for five minutes or more")
    return Nobody(
        f"the step time follows whoever has most pairs; no rank's own pairs add more than {max(slopes.clear.max(), 0):.1f} errors"
    )


def _own(seen: Panel, row: int) -> tuple[float, float]:
    """Seconds per pair of one rank beside the maximum of its peers, which leads in the steps in which it does not; and the error."""
    peers = np.delete(seen.pairs, row, axis=0).max(axis=0)
    found = _slopes(Panel(seen.pairs[[row]], seen.cadence, seen.load), peers)
    return (float(found.each[0]), float(found.error[0])) if found is not None else (np.nan, np.nan)


def _rival(seen: Panel, row: int) -> bool:
    """Whether another rank's pairs lengthen the step too, beside those of the first."""
    beside = _slopes(
        Panel(np.delete(seen.pairs, row, axis=0), seen.cadence, np.vstack([seen.load, seen.pairs[row]])), seen.pairs.max(axis=0)
    )
    return beside is not None and bool((beside.each / beside.error).max() >= RIVAL)


def _shows(half: Panel, row: int) -> bool:
    found = _slopes(half)
    return found is not None and bool(found.clear[row] >= HALF)


def _halves(seen: Panel) -> tuple[Panel, Panel]:
    middle = len(seen.cadence) // 2
    return _columns(seen, slice(None, middle)), _columns(seen, slice(middle, None))


def _columns(seen: Panel, which: slice | npt.NDArray[np.bool_]) -> Panel:
    return Panel(seen.pairs[:, which], seen.cadence[which], seen.load[:, which])


def _calm(seen: Panel) -> Panel:
    """The panel without the intervals that lie far off the healthy model."""
    basis = _basis(seen, seen.pairs.max(axis=0))
    rest = seen.cadence - basis @ (basis.T @ seen.cadence)
    off = np.abs(rest - lockstep.median(rest))
    scale = 1.4826 * lockstep.median(off)
    return _columns(seen, off <= OUTLYING * scale) if scale > 0 else seen


def _basis(seen: Panel, leader: FloatArray) -> FloatArray:
    """(T, K) orthonormal columns that span a constant, the group's load and the leader's pairs."""
    columns = np.column_stack([np.ones(len(seen.cadence)), seen.load.T, leader])
    columns = columns / np.maximum(np.abs(columns).max(axis=0), 1e-12)
    left, sizes, _ = np.linalg.svd(columns, full_matrices=False)
    return np.asarray(left[:, sizes > 1e-9 * sizes[0]])


def _slopes(seen: Panel, leader: FloatArray | None = None) -> _Slopes | None:
    """Each rank's slope beside `leader` (the maximum), with errors that allow for dependence in time; None with too few intervals."""
    leader = seen.pairs.max(axis=0) if leader is None else leader
    basis = _basis(seen, leader)
    spare = len(seen.cadence) - basis.shape[1] - 1
    if spare < LAGS:
        return None
    cadence = seen.cadence - basis @ (basis.T @ seen.cadence)
    pairs = seen.pairs - (seen.pairs @ basis) @ basis.T
    square = (pairs * pairs).sum(axis=1)
    # what is left of a rank that always leads is rounding: no variation, no slope, an endless error
    varies = square > 1e-9 * np.maximum((seen.pairs * seen.pairs).sum(axis=1), 1.0)
    safe = np.where(varies, square, 1.0)
    each = np.where(varies, pairs @ cadence / safe, 0.0)
    rest = cadence - each[:, None] * pairs
    moment = pairs * rest
    spread = (moment * moment).sum(axis=1)
    for lag in range(1, LAGS + 1):
        spread = spread + 2.0 * (1.0 - lag / (LAGS + 1)) * (moment[:, lag:] * moment[:, :-lag]).sum(axis=1)
    plain = (rest * rest).sum(axis=1) / spare * square
    error = np.where(varies, np.sqrt(np.maximum(spread, plain)) / safe, np.inf)
    return _Slopes(each, np.maximum(error, 1e-18), _beside(seen, each, leader), float(np.std(cadence)))


def _beside(seen: Panel, each: FloatArray, leader: FloatArray) -> FloatArray:
    """(R,) slope on the leader's pairs when each rank's own slope is taken out first."""
    others = np.column_stack([np.ones(len(seen.cadence)), seen.load.T])
    others = others / np.maximum(np.abs(others).max(axis=0), 1e-12)
    left, sizes, _ = np.linalg.svd(others, full_matrices=False)
    basis = left[:, sizes > 1e-9 * sizes[0]]
    top = leader - basis @ (basis.T @ leader)
    left_over = seen.cadence - each[:, None] * seen.pairs
    square = float(top @ top)
    return np.asarray(left_over @ top / square) if square > 0 else np.zeros(len(each))
