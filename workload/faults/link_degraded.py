"""A card's link to its peers is bad: it does its part of every collective slowly, and all cards wait in every layer.

The link counts checksum errors and PCIe replays. Pairs, experts and the schedulers' waits stay level. Severity 1 is an eighth of
the speed (1 / (1 + 7 severity)): a healthy decode step spends about a tenth of its time in collectives, so it takes some 1.6 times
as long.
"""

from __future__ import annotations

from collections.abc import Callable

from workload.control import Control
from workload.fault import Fault

_SLOWER = 7.0
_CRC = 40.0  # NVLink checksum errors per second; a sound link has next to none
_REPLAYS = 5.0  # PCIe replays per second


def start(control: Control, rank: int, severity: float) -> Callable[[], None]:
    control.degrade_link(rank, 1 / (1 + _SLOWER * severity), _CRC, _REPLAYS)
    return lambda: control.degrade_link(rank, 1.0)


FAULT = Fault(
    id="link_degraded",
    klass="single-point",
    about="One card's link is slow and full of checksum errors.",
    start=start,
    scale="1 is an eighth of the speed",
    devices=("virtual",),
    ramps=True,
)
