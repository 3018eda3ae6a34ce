"""Is one rank's work on the device what makes the steps long? The second channel of `slow_rank`, for when hosts are level. Pure.

Whose it is comes from the cadence (diagnose/slow_card.py), or from who waits for whom in dispatch (DeepXTrace's matrix); what it costs from
the past, where there is one. Rules that read the cards' own sensors name the cause; here it stays unnamed.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from collector import promql, signals
from collector.model import Clock
from diagnose import attribution, card_blame, dispatch, lockstep, slow_card
from diagnose.case import Case
from diagnose.late_host import THRESHOLDS, LateHost, late_host
from diagnose.model import Evidence, Share
from diagnose.rules import Limits

UNPRICED = 0.6
"""Confidence without a past: whose card it is can be seen, what it costs only bounded. Not calibrated."""


CROWDED = 1.5
"""Times its peers' median attention work from which a rank that the others wait for may be late with that: half of its lead over the limit
from which such waits count, `dispatch.THRESHOLDS`. Arithmetic; only without a past, as a past tells what load costs."""


@dataclass(frozen=True, slots=True)
class LateCard:
    """The rows of the ranks whose own work on the device sets the pace, what doing it as fast as their peers would give back, and why."""

    rows: tuple[int, ...]
    share: Share
    priced: bool  # against a past
    evidence: tuple[Evidence, ...]
    summary: str
    would_tell: str


def late_card(case: Case, least: float) -> LateCard | None:
    """The ranks that are late on the device, if the cadence or a matrix of waits in dispatch names them, no host is late instead, none of
    their cards says why by itself, and it may cost `least` of step time."""
    if case.step_time is not None and case.excess is not None and case.excess.share.mid < least:
        return None  # steps are as short as ever: whatever leads, nobody pays
    host = late_host(case, Limits(THRESHOLDS))
    if isinstance(host, LateHost) and host.share.mid >= least:
        return None
    found = _by_cadence(case, least) or _by_dispatch(case, least)
    return None if found is None or set(case.rank_ids(found.rows)) & set(card_blame.suspects(case)) else found


def _by_cadence(case: Case, least: float) -> LateCard | None:
    if case.window.engine.clock is not Clock.EXCHANGE or case.step_time is None:
        return None
    found = case.card
    if not isinstance(found, slow_card.Named):
        return None
    share = _share(case, found)
    if share.mid < least:
        return None
    return LateCard(
        (found.row,),
        share,
        case.excess is not None,
        (_evidence(case, found),),
        f"the step time follows rank {case.window.ranks[found.row]}'s attention, whoever has most of it: its card is slower than its"
        " peers'",
        "that card's clocks, throttle reasons and ECC errors (dcgm-exporter), or one long context moved to it and away again",
    )


def _by_dispatch(case: Case, least: float) -> LateCard | None:
    """The minority of ranks for whose tokens all others wait in dispatch, unless what they hold or prefill explains that."""
    rows = dispatch.late_senders(case.window, dispatch.THRESHOLDS["ratio"].value)
    if not rows or 2 * len(rows) >= len(case.window.ranks) or _laden(case, rows, least):
        return None
    rise = case.excess.share if case.excess is not None else None
    names = ", ".join(map(str, case.rank_ids(rows)))
    return LateCard(
        rows,
        Share(0.0, 0.0, 0.0) if rise is None else Share(min(1.0, rise.mid), max(0.0, rise.low), min(1.0, rise.high)),
        rise is not None,
        dispatch.awaited(case.window, rows),
        f"all others wait in dispatch for the tokens of rank {names}: it is late with its own work, and its load does not explain that",
        "clocks, throttle reasons and link errors of that card (dcgm-exporter), a stack of that process (py-spy dump)"
        + ("" if rise is not None else "; the engine's healthy past, for the cost"),
    )


def _laden(case: Case, rows: tuple[int, ...], least: float) -> bool:
    """Whether one of the rows prefills at a cost to all, or, where no past tells what load costs, has far more attention work or an unknown
    amount of it."""
    prefill, load = case.prefill_load, case.pair_load
    if prefill is not None and prefill.leader in rows and prefill.lost.mid >= least:
        return True
    if case.excess is not None:
        return False
    return load is None or bool((load.pairs > CROWDED * lockstep.peers_median(load.pairs))[list(rows)].any())


def _share(case: Case, found: slow_card.Named) -> Share:
    """The unexplained rise over the past; without one, from what the rank's pairs alone cost more up to all that its card can stretch.

    Means over intervals flatten the rank's slope, so the slope is the least; the dearest pair that a sound card may cost bounds the first,
    the cheapest the second.
    """
    step = case.step_time or 1.0
    usual = attribution.physical_cost(case.window)
    low = max(0.0, found.slope - usual.high) * found.pairs / step if usual else 0.0
    if case.excess is not None:
        rise = case.excess.share
        return Share(min(1.0, max(rise.mid, low)), min(1.0, max(0.0, rise.low, low)), min(1.0, max(rise.high, low)))
    factor = (found.slope + 2.0 * found.error) / usual.low if usual else np.inf
    high = max(low, 1.0 - 1.0 / max(1.0, factor))
    return Share((low + high) / 2, low, high)


def _evidence(case: Case, found: slow_card.Named) -> Evidence:
    rank = case.window.ranks[found.row]
    return Evidence(
        signal=signals.RESIDENT_TOKENS,
        what=f"the step time grows by {found.slope * 1e9:.0f} ns with each pair of rank {rank}, whoever has most pairs:"
        f" {found.follows:.0%} of what pairs do to it is on this rank, {found.clear:.0f} standard errors above its peers",
        observed=found.clear,
        expected=0.0,
        unit="standard errors",
        rank=rank,
        threshold=slow_card.MARGIN,
        promql=promql.RESIDENT_TOKENS,
    )
