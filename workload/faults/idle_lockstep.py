"""Almost no traffic: one rank has a request or two, and all ranks step along with it for nothing.

The ordinary traffic is turned away and two requests are kept on one rank. Its peers run idle batches: nearly all of the group's time
is spent on a step's fixed part. Severity means nothing.
"""

from __future__ import annotations

from collections.abc import Callable

from workload.config import Lengths
from workload.control import Control
from workload.fault import Fault
from workload.wire import Pin

_REQUESTS = 2


def start(control: Control, rank: int, severity: float) -> Callable[[], None]:  # noqa: ARG001  # there is no half of it
    control.close(closed=True)
    unpin = control.pin(
        Pin(
            name=f"{__name__}-{rank}",
            rank=rank,
            concurrency=_REQUESTS,
            prompt=Lengths(5_000, 0.3, 1_000, 10_000),
            fresh=Lengths(100, 0.5, 16, 400),
            output=Lengths(300, 0.4, 100, 900),
        )
    )

    def end() -> None:
        unpin()
        control.close(closed=False)

    return end


FAULT = Fault(
    id="idle_lockstep",
    klass="load",
    about="One rank has a request or two, and all others step along with nothing to do.",
    start=start,
    scale="means nothing",
    most=1.0,
)
