"""One card runs slower than its peers, and the group's steps have grown with it.

What it detects: a card slowed for heat, by its power supply or its hardware, or below its peers' clock, while the group takes longer.
Why it matters: every layer's collectives wait for the slowest card, and no metric of the engine says whose it is.
Not this rule: failing memory (`gpu_degraded`); a bad link (`link_degraded`); all cards alike slower (`whole_group_slow`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from collector import signals
from diagnose import card_blame, card_signs
from diagnose.model import Class, Finding, Healthy, NoData, Severity
from diagnose.rules import Limits, rule

if TYPE_CHECKING:
    from diagnose.case import Case

NEEDS = (signals.CARD_CLOCK, signals.CARD_THERMAL)


@rule(
    klass=Class.SINGLE_POINT,
    severity=Severity.PAGE,
    remedy="Drain the engine from that card's node, then look at its cooling and power (nvidia-smi -q -d PERFORMANCE,TEMPERATURE,POWER;"
    " fans, air, power supplies). Power capping (0x4) on all cards alike is a setting, no fault.",
    needs=NEEDS,
    **card_signs.THROTTLE,
)
def gpu_throttled(case: Case, limit: Limits) -> Finding | Healthy | NoData:
    return card_blame.judge(case, limit, "gpu_throttled", NEEDS, "no card is slowed for a fault, and the clocks are level", one_clears=True)
