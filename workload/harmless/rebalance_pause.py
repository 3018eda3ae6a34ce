"""All cards stand still for a moment, as while experts are moved to other cards, and then go on.

Every step takes a quarter of a second longer, for half a second: two or three long steps. Severity scales how long the pause is.
"""

from __future__ import annotations

from collections.abc import Callable

from workload.control import Control
from workload.fault import Fault

_LONGER = 0.25  # seconds
_PAUSE = 0.5  # seconds


def start(control: Control, rank: int, severity: float) -> Callable[[], None]:  # noqa: ARG001  # all ranks alike
    # a card's delay is paid by all; the first one stands for them
    stop = control.every(_PAUSE * severity, lambda turn: control.delay(0, _LONGER if turn == 0 else 0.0))

    def end() -> None:
        stop()
        control.delay(0, 0.0)

    return end


FAULT = Fault(
    id="rebalance_pause",
    klass="healthy",
    about="All cards stand still for half a second, once.",
    start=start,
    scale="1 is half a second",
    devices=("virtual",),
    most=4.0,
    whole_group=True,
)
