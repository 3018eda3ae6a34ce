"""A rank's load snapshots stop while the rank goes on: whoever deals by them sees a load that no longer exists.

The rank's timestamp in `/v1/loads` stands still and its counters in `/metrics` go on. A router that counts requests or tokens keeps
dealing by the old figure. Severity means nothing.
"""

from __future__ import annotations

from collections.abc import Callable

from workload.control import Control
from workload.fault import Fault


def start(control: Control, rank: int, severity: float) -> Callable[[], None]:  # noqa: ARG001  # there is no half of it
    control.stick_publisher(rank, stuck=True)
    return lambda: control.stick_publisher(rank, stuck=False)


FAULT = Fault(
    id="stale_ledger",
    klass="load",
    about="One rank's load snapshots stop while it goes on working.",
    start=start,
    scale="means nothing",
    most=1.0,
)
