"""A rank's process hangs for good: all ranks freeze in the next exchange with work pending.

The process is stopped. The front end goes on answering, from snapshots that nobody renews. Severity means nothing.
"""

from __future__ import annotations

from collections.abc import Callable

from workload.control import Control
from workload.fault import Fault


def start(control: Control, rank: int, severity: float) -> Callable[[], None]:  # noqa: ARG001  # there is no half of it
    control.stop_process(rank)
    return lambda: control.continue_process(rank)


FAULT = Fault(
    id="stuck_rank",
    klass="single-point",
    about="The rank's process stops for good, and the whole group with it.",
    start=start,
    scale="means nothing",
    most=1.0,
)
