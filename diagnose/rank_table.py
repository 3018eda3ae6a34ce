"""The per-rank table of a diagnosis: what each rank did in the window, and who is blamed. Pure."""

from __future__ import annotations

import math

import numpy as np

from collector import signals
from collector.model import Clock, FloatArray
from diagnose import attribution, independent, lockstep
from diagnose.case import Case
from diagnose.model import RankRow, Verdict


def rank_rows(case: Case, verdict: Verdict) -> tuple[RankRow, ...]:
    """One row per rank of the window, in its order; None for what was not observed."""
    window = case.window
    waits = case.waits
    own = None if window.engine.clock is Clock.EXCHANGE else independent.pace(window)
    culprits = set(verdict.ranks).union(*(set(v.ranks) for v in verdict.also))
    columns: dict[str, FloatArray] = {
        "step_time": own.steps if own else np.full(len(window.ranks), np.nan),
        "running": window.mean(signals.RUNNING),
        "waiting": window.mean(signals.WAITING),
        "tokens_per_step": lockstep.per_step(window, signals.ATTENTION_TOKENS),
        "pairs_per_step": attribution.mean_pairs(window),
        "wait_per_step": waits.per_step if waits else np.full(len(window.ranks), np.nan),
        "lateness": waits.lateness if waits else np.full(len(window.ranks), np.nan),
        "scheduler_cpu": case.cpu_per_second,
        "snapshot_age": window.mean(signals.SNAPSHOT_AGE),
    }
    known = {name: [value if math.isfinite(value) else None for value in column.tolist()] for name, column in columns.items()}
    return tuple(
        RankRow(rank=rank, culprit=rank in culprits, **{name: column[row] for name, column in known.items()})
        for row, rank in enumerate(window.ranks)
    )
