"""A card is too hot: its driver lowers the SM clock, and every step of the group waits for that card.

Its compute slows with the clock, and below six tenths of it its memory is no longer kept busy either. Waits of the schedulers stay
level: all forwards end together. The card's own sensors say why (hardware thermal slowdown). Severity 1 leaves 30 % of the clock,
0.5 leaves 65 %.
"""

from __future__ import annotations

from collections.abc import Callable

from workload.control import Control
from workload.device.state import Reason
from workload.fault import Fault

_LOST = 0.7  # of the clock, at severity 1


def start(control: Control, rank: int, severity: float) -> Callable[[], None]:
    control.throttle(rank, 1 - _LOST * severity, Reason.HW_THERMAL)
    return lambda: control.throttle(rank, 1.0)


FAULT = Fault(
    id="gpu_throttled",
    klass="single-point",
    about="One card is too hot and runs at a lower SM clock.",
    start=start,
    scale="clock lost: 1 leaves 30 % of it",
    devices=("virtual",),
    most=1.2,
    ramps=True,
)
