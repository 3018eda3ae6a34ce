"""A rank's KV pool is far too small, as if pages leaked and were collected again: requests are taken back, queued, and prefilled anew.

What is left of the pool changes between two sizes every three seconds. In the larger one requests are let in that the smaller one cannot
hold. At severity 1 the smaller size is 3 % of the pool (28K of 950K tokens: some four ordinary requests of chat) and the larger 6 %;
at 0.5 both are twice that.
"""

from __future__ import annotations

from collections.abc import Callable

from workload.control import Control
from workload.fault import Fault

_LEFT = 0.03
_TURN = 3.0  # seconds: time to prefill a handful of prompts


def start(control: Control, rank: int, severity: float) -> Callable[[], None]:
    def turn(number: int) -> None:
        left = (_LEFT if number % 2 == 0 else 2 * _LEFT) / severity
        control.kv_reserve(rank, max(0.0, 1 - left))

    stop = control.every(_TURN, turn)

    def end() -> None:
        stop()
        control.kv_reserve(rank, 0.0)

    return end


FAULT = Fault(
    id="kv_pressure",
    klass="load",
    about="One rank's KV pool is far too small, and its requests are taken back again and again.",
    start=start,
    scale="1 leaves 3 to 6 % of the pool, 0.5 twice that",
    most=1.5,
)
