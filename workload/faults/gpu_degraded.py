"""A card's memory fails: corrected ECC errors by the dozen, one contained uncorrected error, and reads at a fraction of their speed.

The group's steps lengthen with the slow card's attention and experts; waits stay level. Severity 1 leaves half of the memory's
bandwidth, 0.5 leaves 75 %. The uncorrected error stays in the card's counters after the fault has ended.
"""

from __future__ import annotations

from collections.abc import Callable

from workload.control import Control
from workload.fault import Fault

_LOST = 0.5  # of the bandwidth, at severity 1
_SINGLE_BIT = 20.0  # corrected errors per second: far above the few a day of a sound card
_CONTAINED = 94  # NVIDIA's XID for a contained uncorrected ECC error


def start(control: Control, rank: int, severity: float) -> Callable[[], None]:
    control.slow_memory(rank, 1 - _LOST * severity, _SINGLE_BIT)
    control.xid(rank, _CONTAINED)

    def end() -> None:
        control.slow_memory(rank, 1.0)
        control.xid(rank, 0)

    return end


FAULT = Fault(
    id="gpu_degraded",
    klass="single-point",
    about="One card's memory fails: ECC errors, an XID, and half of its bandwidth.",
    start=start,
    scale="bandwidth lost: 1 leaves half of it",
    devices=("virtual",),
    most=1.8,
)
