"""A crowd of ordinary requests lands on one rank: its request count, tokens and pairs all stand far above its peers'.

Severity scales the crowd: 1 is 100 requests of 8K tokens more than the rank's share.
"""

from __future__ import annotations

from collections.abc import Callable

from workload.config import Lengths
from workload.control import Control
from workload.fault import Fault
from workload.wire import Pin

_CONTEXT = 8_000


def start(control: Control, rank: int, severity: float) -> Callable[[], None]:
    return control.pin(
        Pin(
            name=f"{__name__}-{rank}",
            rank=rank,
            concurrency=max(1, round(100 * severity)),
            prompt=Lengths(_CONTEXT, 0.1, 4_000, 12_000),
            fresh=Lengths(32, 0.3, 16, 64),
            output=Lengths(500, 0.4, 100, 1500),
        )
    )


FAULT = Fault(
    id="request_count_skew",
    klass="load",
    about="The router sends one rank many more requests than its peers.",
    start=start,
    scale="how many: 1 is 100 requests of 8K tokens",
)
