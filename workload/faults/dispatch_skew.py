"""Tokens on their way to one card queue before it, as with an incast on its port: every layer's dispatch waits for that card.

Balance, pairs and waits stay level, and no counter of the card shows it. Severity 1 makes a dispatch into the card 13 times as long
(1 + 12 severity), which adds about half a healthy step.
"""

from __future__ import annotations

from collections.abc import Callable

from workload.control import Control
from workload.fault import Fault

_LONGER = 12.0


def start(control: Control, rank: int, severity: float) -> Callable[[], None]:
    control.incast(rank, 1 + _LONGER * severity)
    return lambda: control.incast(rank, 1.0)


FAULT = Fault(
    id="dispatch_skew",
    klass="structural",
    about="Token dispatches queue before one card in every layer.",
    start=start,
    scale="1 is 13 times as long a dispatch",
    devices=("virtual",),
    ramps=True,
)
