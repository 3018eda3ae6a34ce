"""Is one rank's card what makes the steps long? The second channel of `slow_rank`, for when hosts are level. Pure.

Whose card it is comes from the cadence (diagnose/slow_card.py); what it costs from the past, where there is one. Rules that read the
cards' own sensors name the cause; here it stays unnamed.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from collector import promql, signals
from diagnose import attribution, slow_card
from diagnose.case import Case
from diagnose.late_host import THRESHOLDS, LateHost, late_host
from diagnose.model import Evidence, Share
from diagnose.rules import Limits

UNPRICED = 0.6
"""Confidence without a past: whose card it is can be seen, what it costs only bounded. Not calibrated."""


@dataclass(frozen=True, slots=True)
class LateCard:
    """The row of the rank whose card sets the pace, what a card like its peers' would give back, and the numbers."""

    row: int
    share: Share
    priced: bool  # against a past
    evidence: tuple[Evidence, ...]
    clear: float  # standard errors above its peers


def late_card(case: Case, least: float) -> LateCard | None:
    """The slow card of a case, if the cadence names one, no host is late instead, and it may cost `least` of step time."""
    if case.step_time is None or (case.excess is not None and case.excess.share.mid < least):
        return None  # steps are as short as ever: whatever leads, nobody pays
    found = case.card
    host = late_host(case, Limits(THRESHOLDS))
    if not isinstance(found, slow_card.Named) or (isinstance(host, LateHost) and host.share.mid >= least):
        return None
    share = _share(case, found)
    return LateCard(found.row, share, case.excess is not None, (_evidence(case, found),), found.clear) if share.mid >= least else None


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
