"""One burst of ordinary requests comes at once and is dealt evenly: queues and steps swell everywhere, and are well again in seconds.

Severity scales it: 1 is six requests more per rank, once.
"""

from __future__ import annotations

from collections.abc import Callable

from workload.config import Lengths
from workload.control import Control
from workload.fault import Fault
from workload.wire import Pin

_REQUESTS = 6


def start(control: Control, rank: int, severity: float) -> Callable[[], None]:  # noqa: ARG001  # all ranks alike
    ends = [
        control.pin(
            Pin(
                name=f"{__name__}-{r}",
                rank=r,
                concurrency=max(1, round(_REQUESTS * severity)),
                prompt=Lengths(3_000, 0.4, 500, 8_000),
                fresh=Lengths(200, 0.5, 16, 800),
                output=Lengths(60, 0.4, 16, 150),
                renew=False,
            )
        )
        for r in range(control.config.ranks)
    ]

    def end() -> None:
        for forget in ends:
            forget()

    return end


FAULT = Fault(
    id="short_burst",
    klass="healthy",
    about="One burst of ordinary requests, dealt evenly.",
    start=start,
    scale="1 is six requests a rank",
    whole_group=True,
)
