"""The tokens' routing concentrates on the experts of one card: every layer waits for that card, whoever the tokens belong to.

Attention pairs and waits of the schedulers stay level. Severity 1 sends the card 3.5 times its fair share of all token copies
(balancedness about 0.28); 0.5 sends 2.25 times; never more than nine tenths of all. On the cpu device the time follows only where
every rank has a core of its own: the other cards' relief is the hot one's otherwise.
"""

from __future__ import annotations

from collections.abc import Callable

from workload.control import Control
from workload.fault import Fault

_EXCESS = 2.5  # fair shares on top of the card's own, at severity 1


def start(control: Control, rank: int, severity: float) -> Callable[[], None]:
    control.hotspot(rank, min((1 + _EXCESS * severity) / control.config.ranks, 0.9))
    return lambda: control.hotspot(rank, None)


FAULT = Fault(
    id="expert_hotspot",
    klass="structural",
    about="One card's experts receive several times their share of tokens.",
    start=start,
    scale="1 is 3.5 fair shares of all token copies",
    ramps=True,
)
