"""A few conversations with very long contexts live on one rank: its attention reads far more KV in every step than its peers'.

Request counts stay nearly level, so counting requests does not show it. Severity scales how many there are: 1 is four of 200K
tokens, 0.5 is two; at most what the KV pool holds.
"""

from __future__ import annotations

from collections.abc import Callable

from workload.config import Lengths
from workload.control import Control
from workload.fault import Fault
from workload.wire import Pin

_CONTEXT = 200_000


def start(control: Control, rank: int, severity: float) -> Callable[[], None]:
    fits = control.config.limits.kv_tokens * 85 // 100 // _CONTEXT  # the rest is for the rank's ordinary requests
    return control.pin(
        Pin(
            name=f"{__name__}-{rank}",
            rank=rank,
            concurrency=min(max(1, round(4 * severity)), fits),
            prompt=Lengths(_CONTEXT, 0.02, _CONTEXT - 10_000, _CONTEXT + 10_000),
            fresh=Lengths(32, 0.3, 16, 64),  # the conversation is cached: little prefill, nothing but length
            output=Lengths(600, 0.3, 300, 1200),
        )
    )


FAULT = Fault(
    id="context_length_skew",
    klass="load",
    about="A few very long cached contexts decode on one rank.",
    start=start,
    scale="how many: 1 is four contexts of 200K tokens",
)
