"""One card's memory fails or is slow, and the group's steps have grown with it.

What it detects: an XID, uncorrected or endless corrected errors, replaced rows, hot or slow memory on a card, while the group takes longer.
Why it matters: decoding reads memory all the time, so one card's slow memory lengthens every rank's step; and it will fail altogether.
Not this rule: a card that is only throttled (`gpu_throttled`); a bad link (`link_degraded`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from collector import signals
from diagnose import card_blame, card_signs
from diagnose.model import Class, Finding, Healthy, NoData, Severity
from diagnose.rules import Limits, rule

if TYPE_CHECKING:
    from diagnose.case import Case

NEEDS = (signals.CARD_UNCORRECTED, signals.CARD_CORRECTED, signals.CARD_XID)


@rule(
    klass=Class.SINGLE_POINT,
    severity=Severity.PAGE,
    remedy="Drain the engine from that card, reset it (nvidia-smi --gpu-reset) and run dcgmi diag -r 3; replace it if rows cannot be"
    " replaced or the errors come back.",
    needs=NEEDS,
    **card_signs.MEMORY,
)
def gpu_degraded(case: Case, limit: Limits) -> Finding | Healthy | NoData:
    return card_blame.judge(case, limit, "gpu_degraded", NEEDS, "no card reports failing, slow or hot memory")
