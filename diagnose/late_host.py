"""Is one rank's host persistently late? The question that every single-point host rule starts from. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from collector import promql, signals
from collector.engines.limits import name_ranks
from diagnose import clocks, entangled, lockstep, starvation
from diagnose.case import MIN_INTERVALS, Case
from diagnose.model import Evidence, Healthy, NoData, Severity, Share
from diagnose.rules import Limits, Threshold

NEEDS = (signals.STEPS_ACTIVE, signals.SYNC_WAIT, signals.RECV_WAIT)

THRESHOLDS = {
    "share": Threshold(
        0.05,
        "of step time",
        "eight times what chance costs: at most 0.006 in healthy windows (healthy_spread.py); the smallest loss worth waking someone",
    ),
    "measured": Threshold(
        0.03,
        "of step time, by the device timer",
        "twice the most that chance cost in 432 healthy windows of six traffics, 0.0155 (bursty); below `share` it is a ticket",
    ),
    "least": Threshold(
        0.01,
        "of step time, by the device timer, of a rank that is late by `late`",
        "late hosts beside hot experts or a full rank cost 0.011 to 0.05 as overlap hides the rest; below `measured` it is a note",
    ),
    "late": Threshold(
        0.09,
        "of the group's step, waited less than the peers",
        "healthy ranks that cost anything were late by 0.03 of a step at most; late hosts beside a larger cause by 0.1 to 0.9",
    ),
    "margin": Threshold(
        3.0,
        "x the peers' spread",
        "three median deviations are two standard deviations; it asks for a gap, the share decides: healthy gaps reach 23",
    ),
    "agreement": Threshold(
        0.6,
        "of the window's blocks",
        "with 2 to 4 blocks, all but one; by itself it clears nobody: a group with no fault names one rank in 1.0 of its blocks too",
    ),
    "busy": Threshold(
        1.5,
        "x the peers' CPU",
        "healthy peers differ by at most 1.24 (healthy_spread.py); 50 ms of extra work a step gave 139, a starved process 0.8",
    ),
    "swing": Threshold(
        0.2,
        "of the larger lateness",
        "a steady extra cost of 50 ms swings by at most 0.003 in virtual time, one that comes and goes by 0.30; real flushes add a tenth",
    ),
}

CROWDED = 2.0
"""Times the peers' running requests from which lateness may be load: healthy ranks reach 1.63 (benchmarks/healthy_spread.py)."""


@dataclass(frozen=True, slots=True)
class Swing:
    """Between which figures the lateness of a rank goes through the window, in seconds per step: its tenth and ninetieth percentile."""

    low: float
    high: float
    changes: int  # times that it passes the middle between the two

    def bimodal(self, limit: Limits) -> bool:
        """Whether it changes by more than a steady cost does, and back: a single change is an onset."""
        return self.low < (1.0 - limit.swing) * self.high and self.changes > 1


@dataclass(frozen=True, slots=True)
class LateHost:
    """The ranks whose host side is late, and what is known about why."""

    rows: tuple[int, ...]  # array rows; more than one only when the signals cannot separate them
    share: Share
    agreement: float  # share of blocks in time that agree
    evidence: tuple[Evidence, ...]
    cpu_ratio: float | None  # CPU of the late ranks over their peers' median
    weakened_by: tuple[str, ...]
    named: bool  # False: `rows` are candidates
    swing: Swing | None  # of the first of `rows`; None when fewer than MIN_INTERVALS intervals show it
    would_tell: str = ""

    @property
    def several(self) -> bool:
        """Whether more than one rank is late, and each is named."""
        return self.named and len(self.rows) > 1


def late_host(case: Case, limit: Limits) -> LateHost | Healthy | NoData:
    """The late ranks of a case by the limits of THRESHOLDS, or why there are none, or what is missing."""
    if (told := clocks.no_waits(case)) is not None:
        return told
    waits = case.waits
    if waits is None or case.host_lost is None or case.step_time is None:
        return NoData(case.window.missing(signals.STEPS_ACTIVE, signals.SYNC_WAIT), "who waits for whom was not observed")
    if not case.long_enough:
        return NoData((), "the window is too short to show that a wait persists")
    weakened = case.window.missing(signals.RECV_WAIT, signals.SCHEDULER_CPU, signals.RUNNING)
    if not waits.complete and not waits.late:
        return NoData((signals.RECV_WAIT,), "the sync wait alone is flat when rank 0 is late, so it clears nobody")
    clear = bool(waits.late) and waits.gap >= limit.margin * max(waits.spread, 1e-6)
    cost = case.host_lost
    if not clear or not _costs(case, cost, waits, limit) or waits.agreement < limit.agreement:
        steady = clear and waits.agreement >= limit.agreement and _far(case, waits, limit)
        if steady and not case.window.has(signals.FORWARD_TIME) and not _hidden(case, cost, limit):
            return NoData(
                (signals.FORWARD_TIME,), "a rank is late in every exchange, and whether the device's work hides that was not timed"
            )
        return Healthy(_calm(waits, cost, clear=clear))
    row = waits.late[0]
    kept = starvation.kept(case)
    if kept and not set(waits.late) <= set(kept) and max(why.share for why in kept.values()) >= cost.mid:
        late, held = (name_ranks(case.rank_ids(tuple(rows))) for rows in (waits.late, kept))
        # a process that is kept from running wakes late from its own wait too, and counts that as waiting
        return Healthy(f"the waits point at {late}, but hold the delay of {held}, which the kernel keeps from running for longer than that")
    named = waits.complete and len(waits.late) <= len(waits.per_step) / 2
    found = LateHost(
        waits.late,
        cost,
        waits.agreement,
        (_wait_evidence(case, waits, row),),
        _cpu_ratio(case, waits.late),
        weakened,
        named,
        _swing(case, row),
    )
    return _with_pairs(case, _with_load(case, found), limit)


def _costs(case: Case, cost: Share, waits: lockstep.Waits, limit: Limits) -> bool:
    """Whether lateness costs enough to be told: less is enough where the device timer measures it, and where the rank is late by far."""
    return cost.mid >= limit.share or cost.low >= limit.measured or (_far(case, waits, limit) and cost.low >= limit.least)


def _far(case: Case, waits: lockstep.Waits, limit: Limits) -> bool:
    """Whether the low cluster waits less by a good part of the group's step."""
    return waits.gap >= limit.late * (lockstep.active_step(case.window) or case.step_time or np.inf)


def _hidden(case: Case, cost: Share, limit: Limits) -> bool:
    """Whether the past shows that steps are as short as they were at this load: then lateness costs nothing, whoever is late."""
    return case.excess is not None and case.excess.share.high + cost.high < limit.share


def severity(share: Share, limit: Limits) -> Severity | None:
    """How a late host of that cost is told: as its rule says from `share` on, below it not by a page, and below `measured` only shown."""
    if share.mid >= limit.share:
        return None
    return Severity.TICKET if share.mid >= limit.measured else Severity.NOTE


def _calm(waits: lockstep.Waits, cost: Share, *, clear: bool) -> str:
    low, high = lockstep.least(waits.per_step), lockstep.most(waits.per_step)
    span = f"ranks wait {low * 1e3:.1f} to {high * 1e3:.1f} ms per step for each other"
    if not clear:
        return f"{span}; none waits clearly less than its peers"
    if waits.agreement and cost.mid > 0.0:
        return f"{span}, worth {cost.mid:.1%} of step time, and the same rank is last in {waits.agreement:.0%} of the window"
    return f"{span}, hidden behind the device's work"


def _wait_evidence(case: Case, waits: lockstep.Waits, row: int) -> Evidence:
    peers = float(lockstep.peers_median(waits.per_step)[row])
    mine = float(waits.per_step[row])
    rank = case.window.ranks[row]
    return Evidence(
        signal="wait_per_step",
        what=f"rank {rank} waits {mine * 1e3:.1f} ms per step for the others, they wait {peers * 1e3:.1f} ms: who waits least is late",
        observed=mine,
        expected=peers,
        unit="s/step",
        rank=rank,
        threshold=peers - waits.spread,
        promql=promql.WAIT_PER_STEP if waits.complete else promql.SYNC_WAIT_PER_STEP,
    )


def _swing(case: Case, row: int) -> Swing | None:
    late = lockstep.lateness_series(case.window, row)
    late = late[np.isfinite(late)]
    if len(late) < MIN_INTERVALS:
        return None
    low, high = (float(v) for v in np.quantile(late, (0.1, 0.9)))
    above = late > (low + high) / 2
    return Swing(max(0.0, low), high, int(np.count_nonzero(above[1:] != above[:-1]))) if high > 0 else None


def _cpu_ratio(case: Case, rows: tuple[int, ...]) -> float | None:
    cpu = case.cpu_per_second
    peers = np.delete(cpu, rows)
    mine, usual = lockstep.average(cpu[list(rows)]), lockstep.median(peers)
    return mine / usual if np.isfinite(mine) and usual > 0 else None


def _with_load(case: Case, found: LateHost) -> LateHost:
    """If the late rank also holds far more requests than its peers, its lateness may be that load: widen to nothing and say what tells."""
    running = case.window.mean(signals.RUNNING)
    usual = lockstep.peers_median(running)
    row = found.rows[0]
    if not np.isfinite(running[row]) or not running[row] > CROWDED * usual[row]:
        return found
    return replace(
        found,
        share=Share(found.share.mid / 2, 0.0, found.share.high),
        would_tell="this rank also runs far more requests than its peers: move some away and see whether the wait follows them",
    )


def _with_pairs(case: Case, found: LateHost, limit: Limits) -> LateHost | Healthy:
    """What of a lateness attention work may be: all of it if waits follow pairs, unknown if the late rank holds most and nothing tells."""
    load, waits = case.pair_load, case.waits
    if load is None or waits is None or len(found.rows) > 1:
        return found
    row = found.rows[0]
    more = float(load.pairs[row] - lockstep.peers_median(load.pairs)[row])
    how = entangled.tie(case.window)
    if how is not None and how.follows:
        left = max(0.0, 1.0 - how.slope * max(more, 0.0) / waits.gap)
        if found.share.mid * left < limit.share:
            return Healthy(f"waits follow attention work in this window, and that explains {1.0 - left:.0%} of the late rank's lead")
        return replace(found, share=Share(found.share.mid * left, 0.0, found.share.high))
    told = how is not None or case.window.has(signals.FORWARD_TIME)  # the device timer shows that devices stood idle: it is the host
    if told or found.would_tell or not load.pairs[row] > CROWDED * lockstep.peers_median(load.pairs)[row]:
        return found
    return replace(found, share=Share(found.share.mid / 2, 0.0, found.share.high), would_tell=entangled.EXPERIMENT)


def cpu_evidence(case: Case, found: LateHost) -> Evidence:
    """The CPU comparison that tells more work from stolen time."""
    rank = case.window.ranks[found.rows[0]]
    cpu = case.cpu_per_second
    mine, ratio = lockstep.average(cpu[list(found.rows)]), found.cpu_ratio or float("nan")
    return Evidence(
        signal=signals.SCHEDULER_CPU,
        what=f"its scheduler uses {mine:.2f} s of CPU per second, {ratio:.1f} times its peers' median",
        observed=mine,
        expected=mine / ratio,
        unit="s/s",
        rank=rank,
        promql=promql.SCHEDULER_CPU,
    )
