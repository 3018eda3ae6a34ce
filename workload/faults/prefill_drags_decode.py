"""Long prompts arrive at all ranks in turn: nearly always some rank prefills, and everybody's decode pays for it.

No rank stands out over some seconds: it is the layout that runs prefill and decode in one group. A prompt of 8K tokens that no cache
holds takes a rank eight steps. Severity 1 is one such prompt a second for the whole group, 0.5 one every two seconds.
"""

from __future__ import annotations

from collections.abc import Callable

from workload.config import Lengths
from workload.control import Control
from workload.fault import Fault
from workload.wire import Pin


def start(control: Control, rank: int, severity: float) -> Callable[[], None]:  # noqa: ARG001  # all ranks alike
    ranks = control.config.ranks
    ends: list[Callable[[], None]] = []

    def prompt(turn: int) -> None:
        pin = Pin(
            name=f"{__name__}-{turn}",
            rank=turn % ranks,
            concurrency=1,
            prompt=Lengths(8_000, 0.15, 6_000, 10_000),
            fresh=None,
            output=Lengths(16, 0.2, 8, 32),
            renew=False,
        )
        ends.append(control.pin(pin))

    stop = control.every(1 / severity, prompt)

    def end() -> None:
        stop()
        for forget in ends[-4 * ranks :]:  # older ones have long been answered
            forget()

    return end


FAULT = Fault(
    id="prefill_drags_decode",
    klass="structural",
    about="Long prompts are prefilled on all ranks in turn, and every step of the group pays.",
    start=start,
    scale="prompts of 8K tokens per second",
    whole_group=True,
)
