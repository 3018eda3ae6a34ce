"""What the drawn report shows of a window: rank x time quantities per step, and step time through time. Pure arrays."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from collector import signals
from collector.model import FloatArray, Window
from diagnose import attribution, lockstep

CALM = 0.05
"""Share of a step below which waits keep the calm end of the colours: it is what a rule must see lost before it blames a rank's host, and
without it the microseconds of a healthy group would fill the whole scale."""

LEVEL = 2.0
"""Times the median to which the colours of work reach at least: healthy traffic deals up to 1.9 times the mean, and a level group must
not be painted as if everybody were at the limit."""


@dataclass(frozen=True, slots=True)
class Panel:
    """One rank x time quantity. `low_is_telling`: the least value of several ranks is the one to show, else the largest."""

    title: str
    caption: str
    unit: str  # as report.plain.quantity reads it
    values: FloatArray  # (R, T), NaN where not observed
    means: FloatArray  # (R,) of the whole window, the same numbers as in the per-rank table
    absent: tuple[str, ...]  # signals that would have given more of it
    least_top: float = 0.0  # the scale reaches at least this far
    low_is_telling: bool = False


def panels(window: Window, step_time: float | None) -> Iterator[Panel]:
    """Wait, attention pairs and tokens per step of each rank through time."""
    rate = _group_rates(window)
    pairs = attribution.decode_pairs(window)
    tokens = _over(window.get(signals.ATTENTION_TOKENS), rate)
    yield Panel(
        "Wait per step",
        _wait_caption(window),
        "s",
        _over(_wait(window), rate),
        _mean_wait(window),
        window.missing(signals.SYNC_WAIT, signals.RECV_WAIT, signals.STEPS_ACTIVE),
        least_top=CALM * (step_time or 0.0),
        low_is_telling=True,
    )
    yield Panel(
        "Attention pairs per decode step",
        "KV tokens that a rank reads in one decode step. The rank with the most sets the pace of all.",
        "pairs",
        pairs,
        lockstep.nanmean(pairs),
        window.missing(signals.RESIDENT_TOKENS, signals.ATTENTION_PAIRS),
        least_top=LEVEL * _median(pairs),
    )
    yield Panel(
        "Tokens per step",
        "Tokens that a rank puts into one step. Equal tokens can still hide unequal contexts: compare with the pairs above.",
        "tokens",
        tokens,
        lockstep.per_step(window, signals.ATTENTION_TOKENS),
        window.missing(signals.ATTENTION_TOKENS, signals.STEPS_ACTIVE),
        least_top=LEVEL * _median(tokens),
    )


def step_time(window: Window) -> FloatArray:
    """(T,) seconds per step of the group; from decode moments, else from the steps counted. NaN where neither was observed."""
    if not window.ranks:
        return np.full(len(window.edges) - 1, np.nan)
    series = lockstep.cadence_series(window)
    return series if np.isfinite(series).any() else _over(np.ones((1, len(series))), _group_rates(window))[0]


def _group_rates(window: Window) -> FloatArray:
    """(T,) steps per second of the group, as lockstep.group_rate says it of the whole window."""
    if not window.ranks:
        return np.full(len(window.edges) - 1, np.nan)
    return lockstep.nanmedian(window.get(signals.STEPS_ACTIVE) + window.get(signals.STEPS_IDLE))


def _over(values: FloatArray, rate: FloatArray) -> FloatArray:
    out = np.full(values.shape, np.nan)
    np.divide(values, rate, out=out, where=np.isfinite(rate) & (rate > lockstep.LEAST_RATE))
    return out


def _median(values: FloatArray) -> float:
    seen = values[np.isfinite(values)]
    return float(np.median(seen)) if len(seen) else 0.0


def _wait(window: Window) -> FloatArray:
    """Both halves of the wait where the engine reports both: only their sum tells who is late."""
    wait = window.get(signals.SYNC_WAIT)
    return wait + window.get(signals.RECV_WAIT) if window.has(signals.RECV_WAIT) else wait


def _mean_wait(window: Window) -> FloatArray:
    """(R,) wait of the whole window over its steps: the mean of the intervals would weigh those with few steps too much."""
    wait = lockstep.per_step(window, signals.SYNC_WAIT)
    return wait + lockstep.per_step(window, signals.RECV_WAIT) if window.has(signals.RECV_WAIT) else wait


def _wait_caption(window: Window) -> str:
    if not window.has(signals.SYNC_WAIT):
        return ""
    says = "Time a rank spends waiting for the others. The rank that waits LEAST (dark among bright) is the one that all others wait for."
    return says if window.has(signals.RECV_WAIT) else f"{says} Only half of the wait was observed (no {signals.RECV_WAIT}): read with care."
