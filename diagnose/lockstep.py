"""Waits to lateness to lost time: the host channel of a lockstep group. Pure functions over a Window.

All ranks meet every step. A rank whose host side is late makes the others wait, so *the late rank is the one that waits least*. On
SGLang's default path the victims' wait is split between the control broadcast (booked under stage recv_requests) and the metadata
exchange (sync wait), in a pattern that depends on which rank is late: only the sum is monotone (docs/signals.md, measured).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite

import numpy as np

from collector import signals
from collector.model import Clock, FloatArray, Window, once_a_window
from diagnose import sums

BLOCK_S = 3.0
"""Least length of the blocks in which the late rank must be the same. SGLang flushes stage seconds at most once a second, so a block
shorter than this would misplace more than a third of a wait."""

LEAST_RATE = 1e-6
"""Steps per second below which a group counts as standing: one step in eleven days."""


@once_a_window
def steps_per_second(window: Window) -> FloatArray:
    """(R,) steps per second of each rank, idle ones included; equal on all ranks of a healthy lockstep group. NaN: not observed."""
    return window.mean(signals.STEPS_ACTIVE) + window.mean(signals.STEPS_IDLE)


@once_a_window
def rate_series(window: Window) -> FloatArray:
    """(T,) steps per second of the group in each interval; NaN where not observed."""
    return nanmedian(window.get(signals.STEPS_ACTIVE) + window.get(signals.STEPS_IDLE))


@once_a_window
def group_rate(window: Window) -> float | None:
    """Steps per second of the group; None when steps were not observed or none happened."""
    rate = median(steps_per_second(window))
    return rate if rate > LEAST_RATE else None


@once_a_window
def cadence(window: Window) -> float | None:
    """Seconds per step of the group: the mean launch-to-launch time of decode steps, from load snapshots, needing no flag.

    The median over ranks, because a rank's own prefill steps are not in its decode moments but are in everybody else's. Without load
    snapshots, the wall time per step, which is right only while the group never idles. None: no step was seen.
    """
    decode_time, decode_steps = window.mean(signals.DECODE_TIME), window.mean(signals.DECODE_STEPS)
    usable = np.isfinite(decode_time) & (decode_time > LEAST_RATE) & np.isfinite(decode_steps) & (decode_steps > LEAST_RATE)
    if usable.any():
        return median(decode_time[usable] / decode_steps[usable])
    rate = group_rate(window)
    return None if rate is None else 1.0 / rate


@once_a_window
def active_step(window: Window) -> float | None:
    """Seconds of the group's activity per step of any kind; None when neither that nor the cadence was seen.

    The cadence is of decode steps alone, so it says nothing of the mean step of a group in which prompts are computed. Here the time in
    which the group has requests is spread over all steps: the measure of what the device timer and the waits count per step.
    """
    rate, held = group_rate(window), sums.zeroed(window.get(signals.RUNNING)) + sums.zeroed(window.get(signals.WAITING))
    timed = sums.zeroed(window.mean(signals.DECODE_TIME)) + sums.zeroed(window.mean(signals.PREFILL_BUSY))
    # what one rank's steps last is a lower bound, snapshots with a request on any rank are a sample of the rest
    active = min(1.0, max(most(timed), float((held > 0).any(axis=0).mean()) if held.size else 0.0))
    return cadence(window) if rate is None or active <= LEAST_RATE else active / rate


@once_a_window
def cadence_series(window: Window) -> FloatArray:
    """(T,) seconds per step in each interval, by the same rule as `cadence`; NaN where no decode step was seen."""
    decode_time, decode_steps = window.get(signals.DECODE_TIME), window.get(signals.DECODE_STEPS)
    ratio = np.full(decode_time.shape, np.nan)
    np.divide(decode_time, decode_steps, out=ratio, where=np.isfinite(decode_steps) & (decode_steps > LEAST_RATE))
    return nanmedian(ratio)


def per_step(window: Window, signal: str) -> FloatArray:
    """(R,) a counter's amount per step of the group, or per each rank's own step where there is no common clock; NaN where unknown."""
    rate = group_rate(window)
    values = window.mean(signal)
    if window.engine.clock is Clock.NONE:
        own = steps_per_second(window)
        return np.asarray(np.where(own > LEAST_RATE, values / np.where(own > LEAST_RATE, own, 1.0), np.nan))
    return np.full(len(window.ranks), np.nan) if rate is None else values / rate


def median(values: FloatArray) -> float:
    """Median of the finite ones of (n,) values; NaN when there is none. A tenth of the time of numpy's on the few ranks of a group."""
    ordered = values[np.isfinite(values)]
    ordered.sort()
    middle = len(ordered) // 2
    if not len(ordered):
        return float("nan")
    return float(ordered[middle]) if len(ordered) % 2 else float((ordered[middle - 1] + ordered[middle]) / 2)


def average(values: FloatArray) -> float:
    """Mean of the finite ones of (n,) values; NaN when there is none."""
    whole = float(np.add.reduce(values))
    if isfinite(whole) and len(values):  # as nearly always
        return whole / len(values)
    seen = np.isfinite(values)
    count = int(np.count_nonzero(seen))
    return float(np.where(seen, values, 0.0).sum()) / count if count else float("nan")


def least(values: FloatArray) -> float:
    """Least of the values that are no NaN; NaN when there is none."""
    return float(np.fmin.reduce(values))


def most(values: FloatArray) -> float:
    """Largest of the values that are no NaN; NaN when there is none."""
    return float(np.fmax.reduce(values))


def highest(values: FloatArray) -> int:
    """The place of the largest of (n,) values, the first of equals; of those that are no NaN, one at least."""
    return int(np.argmax(np.where(np.isnan(values), -np.inf, values)))


def nanmedian(values: FloatArray) -> FloatArray:
    """(T,) median over the finite values of each column of (R, T); NaN for a column with none."""
    rows, columns = len(values), np.arange(values.shape[1])
    if not rows:
        return np.full(len(columns), np.nan)
    seen = np.isfinite(values)
    ordered = np.sort(np.where(seen, values, np.inf), axis=0)
    if seen.all():  # as nearly always
        return np.asarray((ordered[(rows - 1) // 2] + ordered[rows // 2]) / 2)
    count = np.count_nonzero(seen, axis=0)
    low, high = ordered[np.maximum(count - 1, 0) // 2, columns], ordered[np.minimum(count // 2, rows - 1), columns]
    middle = np.where(count > 0, low, 0.0) + np.where(count > 0, high, 0.0)
    return np.where(count > 0, middle / 2, np.nan)


def peers_median(values: FloatArray) -> FloatArray:
    """(R,) for each rank the median of the *other* observed ranks: a mean that includes the slow rank would hide it."""
    seen = np.isfinite(values)
    known = values[seen]
    known.sort()
    count, half = len(known), (len(known) - 1) // 2
    if count == 0:
        return np.full(len(values), np.nan)
    below, middle = float(known[max(half - 1, 0)]), float(known[half])
    above = float(known[half + 1]) if half + 1 < count else middle
    # what is taken out stands before, at or behind the middle; where values are equal it makes no difference which of them it was
    if count == 1:
        peers = np.full(len(values), np.nan)
    elif count % 2 == 0:
        peers = np.where(values <= middle, above, middle)
    else:
        peers = np.where(values < middle, (middle + above) / 2, np.where(values > middle, (below + middle) / 2, (below + above) / 2))
    return peers if count == len(values) else np.where(seen, peers, middle if count % 2 else (middle + above) / 2)


def over_peers(values: FloatArray) -> FloatArray:
    """(R,) how many times the median of the *other* ranks' each value is; 1 where either was not seen, huge where the others have none."""
    usual = peers_median(values)
    return np.where(np.isfinite(values) & np.isfinite(usual), values / np.maximum(usual, 1e-9), 1.0)


@dataclass(frozen=True, slots=True)
class Waits:
    """Who waits how long in the host exchanges, per step.

    `late` are the rows of the low cluster of waits (empty when no rank stands apart), `gap` the seconds per step between the peers' median
    wait and theirs, `spread` the peers' own scatter (median absolute deviation): what chance and the broadcast tree do by themselves.
    """

    per_step: FloatArray  # (R,) seconds, NaN where unobserved
    complete: bool  # both halves of the wait were observed
    late: tuple[int, ...]
    gap: float
    spread: float
    agreement: float  # share of the window's blocks in which one of `late` waits least (without any: the rank that waits least overall)

    @property
    def lateness(self) -> FloatArray:
        """(R,) seconds per step by which each rank arrives after the first one."""
        return most(self.per_step) - self.per_step

    @property
    def lost(self) -> float:
        """Host lost time per step in seconds: what the average rank waits more than the latest one, which waits for nobody."""
        return average(self.per_step) - least(self.per_step)


def _wait(window: Window) -> FloatArray | None:
    rate = group_rate(window)
    if rate is None or not window.has(signals.SYNC_WAIT):
        return None
    wait = window.mean(signals.SYNC_WAIT)
    if window.has(signals.RECV_WAIT):
        wait = wait + window.mean(signals.RECV_WAIT)
    return wait / rate


def lateness_series(window: Window, row: int) -> FloatArray:
    """(T,) seconds per step by which a rank's wait is shorter than its peers' median in each interval; NaN where unobserved."""
    total = window.get(signals.SYNC_WAIT) + (window.get(signals.RECV_WAIT) if window.has(signals.RECV_WAIT) else 0.0)
    rate = rate_series(window)
    peers = nanmedian(np.delete(total, row, axis=0))
    stepped = np.isfinite(rate) & (rate > LEAST_RATE)
    return np.where(stepped, (peers - total[row]) / np.where(stepped, rate, 1.0), np.nan)


@once_a_window
def waits(window: Window) -> Waits | None:
    """The host waits of a window; None when the exchange's wait or the steps were not observed, or on fewer than two ranks."""
    wait = _wait(window)
    if wait is None or np.isfinite(wait).sum() < 2:
        return None
    late, gap, spread = _low_cluster(wait)
    return Waits(wait, window.has(signals.RECV_WAIT), late, gap, spread, _agreement(window, late or (highest(-wait),)))


def _low_cluster(wait: FloatArray) -> tuple[tuple[int, ...], float, float]:
    """Split the ranks at the largest step between sorted waits: the low ones, their gap to the others, the others' own scatter.

    No cluster (and no gap) when the low side would be more than half of the ranks: then somebody waits *more*, which names nobody.
    """
    rows = np.flatnonzero(np.isfinite(wait))
    order = rows[np.argsort(wait[rows])]
    ordered = wait[order]
    cut = int(np.argmax(np.diff(ordered))) + 1
    if cut > len(order) / 2:
        return (), 0.0, float(ordered[-1] - ordered[0])
    peers = ordered[cut:]
    usual = median(peers)
    gap = usual - float(ordered[:cut].sum()) / cut
    spread = median(np.abs(peers - usual))
    return tuple(sorted(int(k) for k in order[:cut])), gap, spread


def _agreement(window: Window, rows: tuple[int, ...]) -> float:
    """Share of blocks of at least BLOCK_S in which one of `rows` waits least; 0 when the window is too short for two blocks."""
    total = window.get(signals.SYNC_WAIT) + (window.get(signals.RECV_WAIT) if window.has(signals.RECV_WAIT) else 0.0)
    blocks = int((window.end - window.start) // BLOCK_S)
    columns = total.shape[1]
    blocks = min(blocks, columns)
    if blocks < 2:
        return 0.0
    mean = sums.by_part(total, blocks)
    seen = np.isfinite(mean)
    usable = np.count_nonzero(seen, axis=0) > 1
    least = np.argmin(np.where(seen, mean, np.inf), axis=0)
    named = (least[:, None] == np.array(rows)).any(axis=1)
    return float(np.count_nonzero(named & usable) / np.count_nonzero(usable)) if usable.any() else 0.0


def nanmean(values: FloatArray) -> FloatArray:
    """Row means over the observed columns; NaN for a row with none, without warning."""
    seen = np.isfinite(values)
    count = seen.sum(axis=1)
    return np.where(count > 0, np.where(seen, values, 0.0).sum(axis=1) / np.maximum(count, 1), np.nan)


@once_a_window
def host_exposed(window: Window) -> float | None:
    """Seconds per step in which the device had nothing to do while the group was active, from the engine's device timer; None without it.

    With overlapped scheduling a late host costs nothing until the device runs dry, so this bounds what host lateness can have cost.
    """
    forward = per_step(window, signals.FORWARD_TIME)
    step = active_step(window)
    if step is None or not np.isfinite(forward).any():
        return None
    return max(0.0, step - median(forward))


ALWAYS = 0.95
"""Share of wall time that some rank's own steps must fill for the group to count as never standing: what a flush leaves out of a window of
ten seconds is a twentieth at most."""


@once_a_window
def unwaited(window: Window) -> float | None:
    """Seconds per step in which the device had nothing to do and no rank waited for another either: all hosts late alike. None without the
    device timer or the waits, and for a group that stands now and then without a request, as that looks the same."""
    exposed, waited = host_exposed(window), waits(window)
    timed = most(window.mean(signals.DECODE_TIME) + sums.zeroed(window.mean(signals.PREFILL_BUSY)))
    if exposed is None or waited is None or not timed >= ALWAYS:
        return None
    return max(0.0, exposed - most(waited.per_step))
