"""One rank is slower than its peers, window after window: its host side or its card.

What it detects: a rank that persistently arrives last at the host exchanges and is busy, or whose CPU time is not observed; with level
hosts, a card whose own attention sets the step time whoever has most of it (minutes of window, changing leaders); where ranks share no
clock, a rank whose own steps take longer than its load allows by its peers'.
Why it matters: the exchange ends when the last scheduler arrives, each layer when the last card has; one slow rank sets everybody's clock.
Not this rule: a late rank that is kept from running (`host_cpu_starved`); lateness that comes and goes (`slow_process`);
lateness that follows load (`request_count_skew`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from collector.model import Clock
from diagnose import dispatch, independent, late_card, late_host
from diagnose.confidence import confidence
from diagnose.model import Class, Finding, Healthy, NoData, Severity
from diagnose.rules import Limits, rule

if TYPE_CHECKING:
    from diagnose.case import Case


@rule(
    klass=Class.SINGLE_POINT,
    severity=Severity.PAGE,
    remedy="A late host: take a stack of the rank's scheduler (py-spy dump --pid PID) a few times; garbage collection or tokenising"
    " shows at once. A slow card: read its clocks, throttle reasons and ECC errors (nvidia-smi -q) against a peer's. Restart that process"
    " and measure again before replacing anything.",
    needs=late_host.NEEDS,
    **late_host.THRESHOLDS,
    **independent.THRESHOLDS,
    **dispatch.THRESHOLDS,
)
def slow_rank(case: Case, limit: Limits) -> Finding | Healthy | NoData:
    if case.window.engine.clock is not Clock.EXCHANGE:
        alone = independent.slow_rank(case, limit)
        sender = late_card.late_card(case, limit.share) if case.window.engine.clock is Clock.FORWARD else None
        return alone if sender is None or isinstance(alone, Finding) else _card(case, sender, limit)
    found = late_host.late_host(case, limit)
    if not isinstance(found, late_host.LateHost):
        card = late_card.late_card(case, limit.share)
        return found if card is None else _card(case, card, limit)
    if found.several:
        return Healthy("several ranks are late together, which is no single rank's doing")
    ratio = found.cpu_ratio
    if ratio is not None and ratio <= limit.busy:
        return Healthy(f"the late rank uses {ratio:.1f} times its peers' CPU: it is kept from running, not busy")
    if ratio is not None and found.named and found.swing is not None and found.swing.bimodal(limit):
        return Healthy("the late rank's lateness comes and goes: it is a mode of its process, not a cost in every step")
    names = case.rank_ids(found.rows)
    who = f"rank {', '.join(map(str, names))}" if found.named else f"one of ranks {', '.join(map(str, names))}"
    return Finding(
        ranks=names if found.named else (),
        share=found.share,
        confidence=confidence(found.share.mid, limit.share, agreement=found.agreement, missing=len(found.weakened_by) + (not found.named)),
        summary=f"{who} is late at every host exchange" + ("" if ratio is None else f" and uses {ratio:.1f} times its peers' CPU"),
        evidence=(*found.evidence, *(() if ratio is None else (late_host.cpu_evidence(case, found),))),
        would_tell=found.would_tell or "py-spy dump of that rank's scheduler: what it does while the others wait",
        weakened_by=found.weakened_by,
        severity=late_host.severity(found.share, limit),
    )


def _card(case: Case, card: late_card.LateCard, limit: Limits) -> Finding:
    sure = confidence(card.share.mid, limit.share)
    return Finding(
        ranks=case.rank_ids(card.rows),
        share=card.share,
        confidence=sure if card.priced else min(sure, late_card.UNPRICED),
        summary=card.summary,
        evidence=card.evidence,
        would_tell=card.would_tell,
        severity=None if card.share.high > 0 else Severity.TICKET,  # nobody is woken for what may cost nothing
    )
