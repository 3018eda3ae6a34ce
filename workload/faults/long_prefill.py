"""Long prompts that no cache holds arrive at one rank, one after another: it prefills chunk after chunk.

Every chunk lengthens everybody's step, takes the decode graph from all ranks, and keeps the rank's own decodes waiting. Severity
scales the prompts: 1 is about 48K tokens each.
"""

from __future__ import annotations

from collections.abc import Callable

from workload.config import Lengths
from workload.control import Control
from workload.fault import Fault
from workload.wire import Pin


def start(control: Control, rank: int, severity: float) -> Callable[[], None]:
    return control.pin(
        Pin(
            name=f"{__name__}-{rank}",
            rank=rank,
            concurrency=1,
            prompt=Lengths(48_000 * severity, 0.15, round(32_000 * severity), round(64_000 * severity)),
            fresh=None,
            output=Lengths(24, 0.2, 16, 32),
        )
    )


FAULT = Fault(
    id="long_prefill",
    klass="load",
    about="Long uncached prompts are prefilled on one rank, one after another.",
    start=start,
    scale="length: 1 is prompts of about 48K tokens",
)
