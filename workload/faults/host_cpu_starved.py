"""A rank's scheduler process really gets no CPU for most of the time, as beside a greedy neighbour or under a tight CPU quota.

The process is stopped for a share of every 100 ms; its card goes on with what was launched. The process does no more work than
before: its wall time grows, its CPU time does not. Severity 1 takes 85 ms of every 100; 0.5 takes half of that, which a step's
worth of overlap can mostly hide. Not on the cpu device, where the card is a thread of the process and would stop with it.
"""

from __future__ import annotations

from collections.abc import Callable

from workload.control import Control
from workload.fault import Fault

_PERIOD = 0.100  # seconds: the period of a Linux CPU quota
_SHARE = 0.85


def start(control: Control, rank: int, severity: float) -> Callable[[], None]:
    return control.starve(rank, min(_SHARE * severity, 0.95), _PERIOD)


FAULT = Fault(
    id="host_cpu_starved",
    klass="single-point",
    about="The rank's scheduler process is kept off the CPU for most of the time.",
    start=start,
    scale="share of the time: 1 is 85 ms of every 100",
    most=1.1,
    devices=("virtual",),
)
