"""A rank's scheduler process has fallen into a slow mode, as after a bad start or with a fragmented heap; only a restart ends it.

Its passes have two lengths: for two of every three seconds each burns extra CPU, then for one second none, whatever the load does.
The end of the fault is that restart. Severity 1 is 50 ms of CPU a step in the slow mode, more than the overlap with a step of the
card hides.
"""

from __future__ import annotations

from collections.abc import Callable

from workload.control import Control
from workload.fault import Fault

_SECONDS = 0.050
_TURN = 1.0  # seconds of one part of the pattern: slow, slow, normal


def start(control: Control, rank: int, severity: float) -> Callable[[], None]:
    stop = control.every(_TURN * control.config.slowdown, lambda turn: control.busy(rank, 0.0 if turn % 3 == 2 else _SECONDS * severity))

    def restart() -> None:
        stop()
        control.busy(rank, 0.0)

    return restart


FAULT = Fault(
    id="slow_process",
    klass="single-point",
    about="The rank's scheduler process has a slow mode that comes and goes until it is restarted.",
    start=start,
    scale="1 is 50 ms of CPU a step in the slow mode",
)
