"""Why a rank's process is late without working more: what the kernel says of it, against its peers. Pure."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from collector import signals
from diagnose import lockstep
from diagnose.case import Case
from diagnose.model import Evidence

STOLEN = 0.02
"""Seconds per second that a process waits for a CPU from which the CPU is stolen: eight schedulers with cores of their own wait up to
0.003; one competitor pinned to the same core takes half of a busy process' time, 0.2 and more. Between the two by their middle ratio."""

DOMINANT = 3.0
"""Times the peers' run-queue delay from which it is this process' own: if all wait alike the whole node is short of CPU."""

HELD = 0.01
"""Seconds per second held at a CPU quota from which the quota is the cause: one period of 100 ms in ten seconds, each of which stops all
ranks for what is left of it; a quota that is never reached counts 0."""

SEEN = 0.1
"""Share of looks that found a process stopped, or in the kernel, from which that is its state: one in ten seconds of looks."""

SIGNALS = (signals.RUN_QUEUE_DELAY, signals.CGROUP_THROTTLED, signals.PROCESS_STOPPED, signals.PROCESS_BLOCKED)


@dataclass(frozen=True, slots=True)
class Cause:
    """What keeps a process from running: words for a summary that follow "its process", and the number behind them."""

    words: str
    evidence: Evidence


def cause(case: Case, row: int) -> Cause | None:
    """What the kernel says; None when its processes were not read, or nothing of it stands out."""
    window = case.window
    rank = window.ranks[row]
    stopped, blocked = window.mean(signals.PROCESS_STOPPED)[row], window.mean(signals.PROCESS_BLOCKED)[row]
    held, queued = window.mean(signals.CGROUP_THROTTLED)[row], window.mean(signals.RUN_QUEUE_DELAY)
    usual = float(np.nan_to_num(lockstep.peers_median(queued)[row]))
    if stopped >= SEEN:
        return Cause(
            "is stopped by a signal (state T)",
            _evidence(signals.PROCESS_STOPPED, rank, stopped, f"stopped in {stopped:.0%} of the looks", SEEN),
        )
    if held >= HELD:
        what = f"held at its cgroup's CPU quota for {held:.3f} s per second"
        return Cause("is throttled by its cgroup's CPU quota", _evidence(signals.CGROUP_THROTTLED, rank, held, what, HELD, "s/s"))
    if queued[row] >= STOLEN and queued[row] > DOMINANT * usual:
        what = f"ready to run but without a CPU for {queued[row]:.3f} s per second, its peers' for {usual:.3f}"
        evidence = _evidence(signals.RUN_QUEUE_DELAY, rank, float(queued[row]), what, max(STOLEN, DOMINANT * usual), "s/s", usual)
        return Cause("has its CPU taken by something else on the same core", evidence)
    if blocked >= SEEN:
        what = f"waiting inside the kernel in {blocked:.0%} of the looks"
        return Cause(
            "waits inside the kernel (state D), for a driver or a disk", _evidence(signals.PROCESS_BLOCKED, rank, blocked, what, SEEN)
        )
    return None


def looked(case: Case, row: int) -> bool:
    """Whether the kernel was asked about this rank's process."""
    return any(np.isfinite(case.window.mean(name)[row]) for name in SIGNALS)


def _evidence(
    signal: str, rank: int, observed: float, what: str, threshold: float, unit: str = "of looks", expected: float | None = 0.0
) -> Evidence:
    return Evidence(signal, f"rank {rank}'s process was {what}", float(observed), expected, unit, rank, threshold)
