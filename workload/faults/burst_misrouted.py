"""Bursts of requests all land on one rank, as from a router that deals them by a load report older than the burst.

Every five seconds a burst arrives at once, is prefilled there one prompt after the other, decodes, and is gone before the next one.
Between two bursts the rank looks like its peers. It is dealt to the rank by order, so that every router shows it. Severity scales the
burst: 1 is 20 requests of 1K tokens that no cache holds, about a chunk each: twenty steps of prefill.
"""

from __future__ import annotations

from collections.abc import Callable

from workload.config import Lengths
from workload.control import Control
from workload.fault import Fault
from workload.wire import Pin

_PERIOD = 5.0  # seconds: longer than a burst of severity 1 takes, some 20 prefill steps of 0.1 s and 24 decodes
_REQUESTS = 20


def start(control: Control, rank: int, severity: float) -> Callable[[], None]:
    ends: list[Callable[[], None]] = []

    def burst(turn: int) -> None:
        pin = Pin(
            name=f"{__name__}-{rank}-{turn}",
            rank=rank,
            concurrency=max(1, round(_REQUESTS * severity)),
            prompt=Lengths(1_000, 0.2, 500, 1_500),
            fresh=None,
            output=Lengths(24, 0.2, 16, 32),
            renew=False,
        )
        ends.append(control.pin(pin))

    stop = control.every(_PERIOD, burst)

    def end() -> None:
        stop()
        for forget in ends[-2:]:  # older ones have long been answered
            forget()

    return end


FAULT = Fault(
    id="burst_misrouted",
    klass="load",
    about="Bursts of requests are dealt to one rank at once.",
    start=start,
    scale="size of a burst: 1 is 20 requests of 1K tokens",
)
