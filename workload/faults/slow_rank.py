"""A rank's scheduler process does much more work of its own in every step than its peers, whatever its load.

It really burns CPU in its scheduling pass: 50 ms a step at severity 1, more than the overlap with a step of the card hides. Its CPU
time rises with its lateness, which tells it from a process that gets no CPU.
"""

from __future__ import annotations

from collections.abc import Callable

from workload.control import Control
from workload.fault import Fault

_SECONDS = 0.050


def start(control: Control, rank: int, severity: float) -> Callable[[], None]:
    control.busy(rank, _SECONDS * severity)
    return lambda: control.busy(rank, 0.0)


FAULT = Fault(
    id="slow_rank",
    klass="single-point",
    about="The rank's scheduler process burns extra CPU in every step.",
    start=start,
    scale="1 is 50 ms of CPU a step",
    ramps=True,
)
