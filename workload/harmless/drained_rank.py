"""An operator takes a rank out of the rotation: it finishes what it has, and idles beside busy peers until it is back.

Severity means nothing.
"""

from __future__ import annotations

from collections.abc import Callable

from workload.control import Control
from workload.fault import Fault


def start(control: Control, rank: int, severity: float) -> Callable[[], None]:  # noqa: ARG001  # there is no half of it
    control.drain(rank, drained=True)
    return lambda: control.drain(rank, drained=False)


FAULT = Fault(
    id="drained_rank",
    klass="healthy",
    about="One rank gets no new requests for a while.",
    start=start,
    scale="means nothing",
    most=1.0,
)
