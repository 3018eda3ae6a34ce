"""One card's link to the others is bad, and the group's steps have grown with it.

What it detects: endless NVLink errors or PCIe retries, an NVLink XID, or missing PCIe lanes on a card, while the group takes longer.
Why it matters: every layer sends tokens to the experts and back; each rank waits for the parts that come over the bad link.
Not this rule: a slow card (`gpu_throttled`, `gpu_degraded`); uneven dispatch over sound links (`expert_hotspot`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from collector import signals
from diagnose import card_blame, card_signs
from diagnose.model import Class, Finding, Healthy, NoData, Severity
from diagnose.rules import Limits, rule

if TYPE_CHECKING:
    from diagnose.case import Case

NEEDS = (signals.CARD_LINK_ERRORS, signals.CARD_PCIE_REPLAYS)


@rule(
    klass=Class.SINGLE_POINT,
    severity=Severity.PAGE,
    remedy="Drain the engine from that card's node; read nvidia-smi nvlink -e and lspci -vv on it, reseat or replace the card, its riser or"
    " its cable.",
    needs=NEEDS,
    **card_signs.LINK,
)
def link_degraded(case: Case, limit: Limits) -> Finding | Healthy | NoData:
    return card_blame.judge(case, limit, "link_degraded", NEEDS, "no card's NVLinks or PCIe lanes count errors that its peers' do not")
