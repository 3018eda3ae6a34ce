"""Cards' signs held against the group's step time: which card is to blame, and for how much. Pure.

In a lockstep a slow card shows in nobody's waits, only in a longer step of the group. So a sign names the card, and what no other cause
explains of the step time, against the healthy past, is its price. A sign that was there in the past already explains no rise over it; and
without a past a price is not known, only bounds of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from collector import signals
from diagnose import graphs
from diagnose.card_signs import KINDS, Kind, Sign
from diagnose.case import Case
from diagnose.confidence import MISSING, confidence
from diagnose.model import Evidence, Finding, Healthy, NoData, Share
from diagnose.rules import Limits

UNPRICED = 0.6
"""Confidence without a past: what the card says is certain, what it costs is not known. Not calibrated."""

FELL = 0.10
"""Fall of expert balancedness from which the experts share the blame: healthy windows differ by 0.011 (healthy_spread.py)."""

OPEN = 2.0
"""Times what is blamed that the price of a new sign may reach before it counts as open instead of nothing: its range is two standard errors
wide, so a price of nothing that is known as well as healthy windows show it (errors of 0.01 to 0.03) stays below 0.06."""

_PARTLY = "part of what a failing card would say is not read"


@dataclass(frozen=True, slots=True)
class _Price:
    whole: float  # share of step time that nothing else explains
    share: Share  # of it, this kind's
    alone: bool  # nothing else is there that may have cost it too


def fresh(case: Case, kind: Kind) -> list[Sign]:
    """Signs that can explain a rise over the past: not harmless, and not there in the past already."""
    old = {sign.identity: sign for sign in kind.find(case.baseline)} if case.baseline is not None else {}
    return [sign for sign in kind.find(case.window) if not sign.harmless and not _same(sign, old.get(sign.identity))]


WORSE = 0.8
"""Times its past clock below which a card that was slow before is slow anew. Cards of one node differ by up to 0.03 in clock, so 0.2 is a
change; as a share of compute-bound time it is 0.25, five times the least that is blamed."""


def _same(sign: Sign, before: Sign | None) -> bool:
    """Whether a sign was there before, no better than now."""
    if before is None:
        return False
    clocked = sign.evidence.signal in {signals.CARD_CLOCK, signals.CARD_MEMORY_CLOCK}
    return not (clocked and sign.evidence.observed < WORSE * before.evidence.observed)


def suspects(case: Case) -> tuple[int, ...]:
    """Ranks whose cards give a sign that can explain a rise over the past."""
    rows = {sign.row for kind in KINDS for sign in fresh(case, kind)}
    return case.rank_ids(tuple(sorted(rows)))


def judge(
    case: Case, limit: Limits, rule_id: str, needs: tuple[str, ...], calm: str, *, one_clears: bool = False
) -> Finding | Healthy | NoData:
    """The outcome of a rule on cards. `needs`: what it reads foremost, each of which makes it surer; `calm`: what is said of cards
    without a sign; `one_clears`: one of `needs` is enough to say that, as each alone would show a card that costs time."""
    kind = next(kind for kind in KINDS if kind.rule == rule_id)
    window = case.window
    weakened = window.missing(*needs)
    if len(weakened) == len(needs):
        return NoData(needs, "no card of the ranks was read")
    every = kind.find(window)
    if not every:
        settled = case.excess is not None and case.excess.share.mid < limit.share  # then no card costs anything, whatever it would say
        return Healthy(calm) if one_clears or settled or not weakened else NoData(weakened, _PARTLY)
    if not case.long_enough:
        return NoData((), "the window is too short to show that a card stays slow")
    new = fresh(case, kind)
    if not new:
        return _costless(every, "and slows nothing" if all(sign.harmless for sign in every) else "as it did in the healthy past")
    price = _price(case, kind)
    if price is None:
        if any(sign.dated for sign in new):
            return _unpriced(case, new, weakened)
        return NoData(weakened, _PARTLY) if weakened else _costless(new, "since when is not known")
    if price.whole < limit.share <= price.share.high / OPEN:
        said = "; ".join(dict.fromkeys(sign.evidence.what for sign in new[:4]))
        return NoData(weakened, f"{said}, and what it costs is open: {price.whole:.1%} of step time, up to {price.share.high:.0%}")
    if price.whole < limit.share:
        return _costless(new, f"and steps take what they did: {price.whole:.1%} is unexplained")
    sure = confidence(price.whole, limit.share, missing=len(weakened) + (not price.alone) + (price.share.low < 0))
    other = "" if price.alone else "; something else changed too, so its part of the loss is a range"
    return Finding(
        ranks=_names(case, new),
        share=Share(price.share.mid, max(0.0, price.share.low), price.share.high),
        confidence=sure,
        summary=f"{_summary(case, new)}, and the whole group waits for it in every layer{other}",
        evidence=_evidence(new),
        would_tell="" if price.alone else "drain that card's rank: the part of the loss that goes is its own",
        weakened_by=weakened,
    )


def _price(case: Case, kind: Kind) -> _Price | None:
    """What the group's unexplained excess leaves for these cards; None when there is no excess to read."""
    if case.excess is None or case.baseline is None:
        return None
    share = _bounded(case.excess.share)
    fallen = case.balancedness_before is not None and case.balancedness is not None and case.balancedness_before - case.balancedness > FELL
    others = any(fresh(case, other) for other in KINDS if other is not kind)
    if not (fallen or graphs.lost(case.window, case.baseline) or others):
        return _Price(share.mid, share, True)
    return _Price(share.mid, Share(share.mid / 2, 0.0, share.high), False)


def _unpriced(case: Case, signs: list[Sign], weakened: tuple[str, ...]) -> Finding:
    """Without a past: a card that is slower than its peers holds the group up by at most what its clock lacks; else nothing bounds it."""
    clocks = [sign.evidence for sign in signs if sign.evidence.signal == signals.CARD_CLOCK]
    lacks = [1.0 - e.observed / e.expected for e in clocks if e.expected]
    return Finding(
        ranks=_names(case, signs),
        share=Share(max(lacks) / 2, 0.0, max(lacks)) if lacks else Share(0.0, 0.0, 1.0),
        confidence=round(UNPRICED * MISSING ** len(weakened), 3),
        summary=f"{_summary(case, signs)}; what it costs the group cannot be said without a healthy past",
        evidence=_evidence(signs),
        would_tell="a capture of this engine when it was healthy (--baseline)",
        weakened_by=weakened,
    )


def _costless(signs: Sequence[Sign], why: str) -> Healthy:
    """Signs that nobody need be woken for: said, with their numbers, and blamed for nothing."""
    return Healthy("; ".join(dict.fromkeys(sign.evidence.what for sign in signs[:4])) + f", {why}", _evidence(signs))


def _names(case: Case, signs: list[Sign]) -> tuple[int, ...]:
    return case.rank_ids(tuple(sorted({sign.row for sign in signs})))


def _summary(case: Case, signs: list[Sign]) -> str:
    """The first sign of the worst card; the others by number."""
    names = _names(case, signs)
    words = signs[0].words
    if len(names) == 1:
        return f"the card of rank {names[0]} {words}"
    return f"the cards of ranks {', '.join(map(str, names))} show faults, that of rank {case.window.ranks[signs[0].row]} {words}"


def _evidence(signs: Sequence[Sign]) -> tuple[Evidence, ...]:
    return tuple(sign.evidence for sign in signs[:8])


def _bounded(share: Share) -> Share:
    return Share(float(np.clip(share.mid, 0.0, 1.0)), min(share.low, 1.0), float(np.clip(share.high, 0.0, 1.0)))
