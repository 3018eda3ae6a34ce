"""Confidence as a frequency: fitted on runs of the tuning seeds, checked on the test seeds. Writes diagnose/calibration.json.

Every verdict of a tuning run counts: with all signals, without a past, and with less read, so that what is stated with little confidence
is in the sample too. The map is logistic in the stated confidence's logit, times a ceiling. It is strictly rising, so that weaker evidence
never says more; the ceiling is the lower end of Wilson's interval of the surest verdicts, counted by run, so that no figure is higher than
the number of runs proves.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec
import numpy as np
from scipy.optimize import minimize

from benchmarks.accuracy.headline import sure_and_right
from benchmarks.accuracy.judge import Judged, right
from benchmarks.accuracy.observe import Said
from benchmarks.accuracy.stats import ece, reliability, wilson
from benchmarks.accuracy.tables import table
from diagnose.confidence import Calibration
from diagnose.model import Class

STEEP = 0.1
"""Least slope: with hardly a wrong verdict in the sample the best slope is 0, and then weaker evidence would say as much."""
SURE = 0.9
"""Stated confidence from which verdicts count for the ceiling."""
KNOTS = (0.0, 0.02, 0.05, *np.arange(0.1, 0.96, 0.05), 0.97, 1.0)


def everything_said(run: Judged) -> list[Said]:
    """All verdicts of a run that was asked without signals too."""
    seen = run.observed
    return [seen.main, *((seen.no_past,) if seen.no_past else ()), *seen.ablated.values()]


def fit(runs: Sequence[Judged], made_by: str, seeds: str) -> Calibration:
    """The table from tuning runs. Raises ValueError when they hold no verdict that names a cause."""
    pairs = [(said.raw, right(said, run.truths)) for run in runs for said in everything_said(run) if said.cause is not None]
    if not pairs:
        raise ValueError("no verdict names a cause; calibrate on more runs")
    surest = [right(run.observed.main, run.truths) for run in runs if run.observed.main.cause and run.observed.main.raw >= SURE]
    ceiling = wilson(sum(surest), len(surest)).low if surest else 0.5
    stated, curve = _logistic(pairs, ceiling)
    healthy, n = _healthy(runs)
    return Calibration(
        made_by=made_by,
        device="virtual",
        seeds=seeds,
        runs=len(runs),
        verdicts=len(pairs),
        stated=stated,
        calibrated=curve,
        healthy=round(healthy, 3),
        healthy_verdicts=n,
    )


def _logistic(pairs: Sequence[tuple[float, bool]], ceiling: float) -> tuple[tuple[float, ...], tuple[float, ...]]:
    raw, hit = np.array([p for p, _ in pairs]), np.array([r for _, r in pairs], dtype=float)
    x = _logit(raw)
    rights, wrongs = hit.sum(), len(hit) - hit.sum()
    target = np.where(hit > 0, (rights + 1) / (rights + 2), 1 / (wrongs + 2))  # Platt: no certainty from a finite sample

    def loss(at: np.ndarray[tuple[int, ...], np.dtype[np.float64]]) -> float:
        p = np.clip(ceiling / (1 + np.exp(-(at[0] + at[1] * x))), 1e-9, 1 - 1e-9)
        return float(-np.mean(target * np.log(p) + (1 - target) * np.log(1 - p)))

    found = minimize(loss, np.array([1.0, 1.0]), method="L-BFGS-B", bounds=[(-6.0, 6.0), (STEEP, 5.0)])
    knots = np.array(KNOTS)
    curve = ceiling / (1 + np.exp(-(found.x[0] + found.x[1] * _logit(knots))))
    curve[0] = 0.0
    return tuple(round(float(k), 3) for k in knots), tuple(round(float(v), 4) for v in curve)


def _logit(p: np.ndarray[tuple[int, ...], np.dtype[np.float64]]) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    kept = np.clip(p, 0.01, 0.99)
    return np.log(kept / (1 - kept))


def _healthy(runs: Sequence[Judged]) -> tuple[float, int]:
    """How often `healthy` is right if every second window has a fault: cautiously, with the ends of both intervals that lower it."""
    calm = [r.observed.main.klass == Class.HEALTHY.value for r in runs if not r.truths]
    ill = [r.observed.main.klass == Class.HEALTHY.value for r in runs if any(t.tells != "hidden" for t in r.truths)]
    said, missed = wilson(sum(calm), len(calm)), wilson(sum(ill), len(ill))
    low = said.low / (said.low + missed.high) if calm and ill and said.low else 0.5
    return (low if math.isfinite(low) else 0.5), sum(calm) + sum(ill)


def section(runs: Sequence[Judged]) -> tuple[str, str]:
    """The reliability table of the test runs' verdicts, and the calibration error in a line."""
    said = sure_and_right(runs)
    bins = reliability([(c, r) for _, c, r in said])
    stated = reliability([(c, r) for c, _, r in said])
    rows = [[f"{b.low:.2f} to {b.high:.2f}", b.n, f"{b.confidence:.3f}", b.right] for b in bins]
    line = f"{ece(bins):.3f} over {len(said)} verdicts (as the rules state it: {ece(stated):.3f})"
    return table(["confidence", "verdicts", "mean confidence", "right"], rows), line


def encoded(found: Calibration) -> bytes:
    """As it is stored."""
    return msgspec.json.format(msgspec.json.encode(found), indent=2) + b"\n"
