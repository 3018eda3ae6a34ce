"""Confidence as a frequency: fitted on runs of the tuning seeds, checked on the test seeds. Writes diagnose/calibration.json.

Every verdict of a tuning run counts: with all signals, without a past, and with less read, so that what is stated with little confidence
is in the sample too. The map is the isotonic regression of being right on the stated confidence, in which every rule counts alike,
falling to 0 below the least that was ever stated, and for each rule a shift of its log odds, drawn towards none for a rule that spoke
seldom. No figure is above the lower end of Wilson's interval of a record without a fault: what so many runs can prove at best.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

import msgspec
import numpy as np
from scipy.optimize import isotonic_regression

from benchmarks.accuracy.headline import sure_and_right
from benchmarks.accuracy.judge import NO_NEWS, Judged, right
from benchmarks.accuracy.observe import Said
from benchmarks.accuracy.stats import Z, ece, reliability, wilson
from benchmarks.accuracy.tables import table
from diagnose.confidence import Calibration, Record
from diagnose.model import Class

PRIOR = 5.0
"""Runs' worth of the belief that a rule does as all do: a rule with fewer verdicts is mostly that, one with more mostly itself."""
BIN = 40
"""Verdicts in a point of the regression: the share of 40 is known to 8 %, twice the steps between what rules state."""


def everything_said(run: Judged) -> list[Said]:
    """All verdicts of a run that was asked without signals too."""
    seen = run.observed
    return [seen.main, *(one for one in (seen.brief, seen.no_past) if one), *seen.ablated.values()]


def fit(runs: Sequence[Judged], made_by: str, seeds: str) -> Calibration:
    """The table from tuning runs. Raises ValueError when they hold no verdict that names a cause."""
    pairs = [(said.raw, right(said, run.truths), said.cause) for run in runs for said in everything_said(run) if said.cause is not None]
    if not pairs:
        raise ValueError("no verdict names a cause; calibrate on more runs")
    stated, curve = _isotonic(pairs)
    named = [run for run in runs if run.observed.main.cause]
    healthy, n = _healthy(runs)
    return Calibration(
        made_by=made_by,
        device="virtual",
        seeds=seeds,
        runs=len(runs),
        verdicts=len(pairs),
        stated=stated,
        calibrated=curve,
        ceiling=_ceiling(PRIOR),
        rules={rule: _record([r for r in named if r.observed.main.cause == rule], stated, curve) for rule in _speakers(named)},
        healthy=round(healthy, 3),
        healthy_verdicts=n,
    )


def _speakers(named: Sequence[Judged]) -> list[str]:
    return sorted({str(run.observed.main.cause) for run in named})


def _ceiling(runs: float) -> float:
    """What so many runs prove when all of them are right: the lower end of Wilson's interval."""
    return math.floor(1e4 * runs / (runs + Z * Z)) / 1e4


def _record(named: Sequence[Judged], stated: Sequence[float], curve: Sequence[float]) -> Record:
    expected = float(np.mean([np.interp(run.observed.main.raw, stated, curve) for run in named]))
    found = (sum(right(run.observed.main, run.truths) for run in named) + PRIOR * expected) / (len(named) + PRIOR)
    return Record(round(_logit(found) - _logit(expected), 3), _ceiling(len(named) + PRIOR), len(named))


def _logit(p: float) -> float:
    kept = min(max(p, 0.01), 0.99)
    return math.log(kept / (1 - kept))


def _isotonic(said: Sequence[tuple[float, bool, str]]) -> tuple[tuple[float, ...], tuple[float, ...]]:
    ordered = sorted(said)
    spoke = Counter(rule for _, _, rule in said)
    points: dict[float, list[tuple[float, bool]]] = {}  # mean stated -> (weight, right?)
    for part in np.array_split(np.arange(len(ordered)), max(1, len(ordered) // BIN)):
        middle = round(float(np.mean([ordered[i][0] for i in part])), 3)
        points.setdefault(middle, []).extend((1.0 / spoke[ordered[i][2]], ordered[i][1]) for i in part)
    weights = [sum(w for w, _ in hits) for hits in points.values()]
    shares = [
        (len(hits) * sum(w for w, hit in hits if hit) / weight + 1) / (len(hits) + 2)  # no certainty from a finite sample
        for weight, hits in zip(weights, points.values(), strict=True)
    ]
    rising = isotonic_regression(shares, weights=weights).x
    return tuple(float(s) for s in (0.0, *points, 1.0)), tuple(round(float(c), 4) for c in (0.0, *rising, rising[-1]))


def _healthy(runs: Sequence[Judged]) -> tuple[float, int]:
    """How often `healthy` is right if every second window has a fault: cautiously, with the ends of both intervals that lower it."""
    calm = [r.observed.main.klass == Class.HEALTHY.value for r in runs if not r.truths]
    ill = [r.observed.main.klass == Class.HEALTHY.value for r in runs if any(t.tells not in NO_NEWS for t in r.truths)]
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
