"""One rank has a few conversations two or three times as long as its peers': its pairs stand out, and hardly a step is longer for it.

Healthy data-parallel attention is skewed: a ratio of tokens of 1.85 between the busiest rank and the mean was measured on one without
fault. Severity scales it: 1 is three requests of 16K tokens.
"""

from __future__ import annotations

from collections.abc import Callable

from workload.config import Lengths
from workload.control import Control
from workload.fault import Fault
from workload.wire import Pin

_REQUESTS = 3


def start(control: Control, rank: int, severity: float) -> Callable[[], None]:
    return control.pin(
        Pin(
            name=f"{__name__}-{rank}",
            rank=rank,
            concurrency=max(1, round(_REQUESTS * severity)),
            prompt=Lengths(16_000, 0.1, 12_000, 20_000),
            fresh=Lengths(32, 0.3, 16, 64),
            output=Lengths(400, 0.3, 200, 800),
        )
    )


FAULT = Fault(
    id="uneven_lengths",
    klass="healthy",
    about="One rank has a few conversations longer than its peers'.",
    start=start,
    scale="1 is three requests of 16K tokens",
)
