"""Why a rank's process is late without working more: what the kernel says of it, against its peers. Pure."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from collector import signals
from collector.model import FloatArray, Window, once_a_window
from diagnose import lockstep, sums
from diagnose.case import Case
from diagnose.model import Evidence, Share

STOLEN = 0.05
"""Seconds per second that a process waits for a CPU from which it is starved. Four ranks on two cores that others kept busy waited up to
0.039, one that two competitors on its core outranked 0.87 and 0.91 (measured with the workload)."""

DOMINANT = 3.0
"""Times the peers' run-queue delay from which it is this process' own: if all wait alike the whole node is short of CPU."""

HELD = 0.01
"""Seconds per second held at a CPU quota from which the quota is the cause: one period of 100 ms in ten seconds, each of which stops all
ranks for what is left of it; a quota that is never reached counts 0."""

SEEN = 0.1
"""Share of looks that found a process stopped, or in the kernel, from which that is its state: one in ten seconds of looks."""

FAR = 0.75
"""Share of looks on another NUMA node than its card from which a process is pinned there: one that roams over two nodes shows 0.5."""

LEAST = 0.05
"""Share of time that a process must be kept from running to be blamed without the waits' word: as much as a cause must cost."""

STUCK = 0.5
"""Share of looks from which a stopped process is no slow one: steps that are taken at all cannot be its doing."""

SIGNALS = (signals.RUN_QUEUE_DELAY, signals.CGROUP_THROTTLED, signals.PROCESS_STOPPED, signals.PROCESS_BLOCKED)

_LIMITS = {
    signals.RUN_QUEUE_DELAY: STOLEN,
    signals.CGROUP_THROTTLED: HELD,
    signals.PROCESS_STOPPED: SEEN,
    signals.PROCESS_BLOCKED: SEEN,
    signals.FAR_FROM_CARD: FAR,
}


@dataclass(frozen=True, slots=True)
class Cause:
    """What keeps a process from running: words that follow "its process", the share of time it was kept, and the number behind them."""

    words: str
    share: float
    evidence: Evidence


def cause(case: Case, row: int) -> Cause | None:
    """What the kernel says; None when its processes were not read, or nothing of it stands out."""
    window = case.window
    rank = window.ranks[row]
    stopped, blocked = window.mean(signals.PROCESS_STOPPED)[row], window.mean(signals.PROCESS_BLOCKED)[row]
    held, queued = window.mean(signals.CGROUP_THROTTLED)[row], window.mean(signals.RUN_QUEUE_DELAY)
    usual = float(_usual_delay(window)[row])
    if stopped >= SEEN:
        return Cause(
            "is stopped by a signal (state T)",
            float(stopped),
            _evidence(signals.PROCESS_STOPPED, rank, stopped, f"stopped in {stopped:.0%} of the looks", SEEN),
        )
    if held >= HELD:
        what = f"held at its cgroup's CPU quota for {held:.3f} s per second"
        return Cause(
            "is throttled by its cgroup's CPU quota", float(held), _evidence(signals.CGROUP_THROTTLED, rank, held, what, HELD, "s/s")
        )
    if queued[row] >= STOLEN and queued[row] > DOMINANT * usual:
        what = f"ready to run but without a CPU for {queued[row]:.3f} s per second, its peers' for {usual:.3f}"
        evidence = _evidence(signals.RUN_QUEUE_DELAY, rank, float(queued[row]), what, max(STOLEN, DOMINANT * usual), "s/s", usual)
        return Cause("has its CPU taken by something else on its cores", float(queued[row]), evidence)
    far = window.mean(signals.FAR_FROM_CARD)
    if far[row] >= FAR and not lockstep.peers_median(far)[row] >= FAR:
        what = f"on another NUMA node than its card in {far[row]:.0%} of the looks"
        return Cause("runs far from its card, on another NUMA node", 0.0, _evidence(signals.FAR_FROM_CARD, rank, far[row], what, FAR))
    if blocked >= SEEN:
        what = f"waiting inside the kernel in {blocked:.0%} of the looks"
        return Cause(
            "waits inside the kernel (state D), for a driver or a disk",
            float(blocked),
            _evidence(signals.PROCESS_BLOCKED, rank, blocked, what, SEEN),
        )
    return None


@once_a_window
def _usual_delay(window: Window) -> FloatArray:
    """(R,) the median of the other processes' run-queue delay, s/s; 0 where none was read."""
    return sums.zeroed(lockstep.peers_median(window.mean(signals.RUN_QUEUE_DELAY)))


def _suspects(window: Window) -> list[int]:
    """Rows of which one number at least reaches its limit: `cause` has nothing to say of any other."""
    held = [window.mean(name) >= limit for name, limit in _LIMITS.items()]
    return np.flatnonzero(np.any(held, axis=0)).tolist()


def stopped(case: Case, rows: tuple[int, ...]) -> dict[int, Cause]:
    """Those of the rows whose process was found stopped by a signal."""
    found = {row: why for row in _suspects(case.window) if row in rows and (why := cause(case, row))}
    return {row: why for row, why in found.items() if why.evidence.signal == signals.PROCESS_STOPPED}


def looked(case: Case, row: int) -> bool:
    """Whether the kernel was asked about this rank's process."""
    return any(np.isfinite(case.window.mean(name)[row]) for name in SIGNALS)


def kept(case: Case) -> dict[int, Cause]:
    """Rows whose process the kernel itself keeps from running for long enough to cost LEAST of the time, if they are a minority.

    The exchanges' waits do not show them all: a process that is woken late from its own wait counts the delay as waiting, as its peers do
    theirs. A process that is stopped for most of the window is no slow rank but a stuck one; one inside the kernel may be at work there.
    """
    if case.step_time is None:
        return {}
    found = {row: why for row in _suspects(case.window) if (why := cause(case, row)) and why.share >= LEAST}
    found = {row: why for row, why in found.items() if why.evidence.signal != signals.PROCESS_BLOCKED}
    stuck = any(why.evidence.signal == signals.PROCESS_STOPPED and why.share >= STUCK for why in found.values())
    return {} if stuck or len(found) * 2 > len(case.window.ranks) else found


def cost(case: Case, causes: dict[int, Cause]) -> Share:
    """Share of step time that processes kept from running cost: at most the time that they were kept, and no more than the rise of the
    step time over the past that is not explained otherwise; without a past only the first is known."""
    most = min(1.0, max(why.share for why in causes.values()))
    if case.excess is None:
        return Share(most / 2, 0.0, most)
    risen = max(0.0, case.excess.share.mid) + (case.host_dry.mid if case.host_dry else 0.0)
    mid = min(most, risen)
    return Share(mid, min(mid, max(0.0, case.excess.share.low)), most)


def _evidence(
    signal: str, rank: int, observed: float, what: str, threshold: float, unit: str = "of looks", expected: float | None = 0.0
) -> Evidence:
    return Evidence(signal, f"rank {rank}'s process was {what}", float(observed), expected, unit, rank, threshold)
