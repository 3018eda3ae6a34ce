"""A whole node is slow: all ranks of one half of the group straggle in turn, a different one every few steps.

As behind a noisy neighbour that moves over the node's cores. In the mean of some seconds every rank of that half waits less than
those of the other half, and none of them stands out. `rank` names the half: any rank in it. Severity 1 is 60 ms of CPU a step for
whoever's turn it is.
"""

from __future__ import annotations

from collections.abc import Callable

from workload.control import Control
from workload.fault import Fault

_SECONDS = 0.060
_TURN = 0.3  # seconds: four or five steps


def node(rank: int, ranks: int) -> tuple[int, ...]:
    """The ranks of the half that `rank` is in; of an odd number the second half has one more."""
    half = ranks // 2
    return tuple(range(half)) if rank < half else tuple(range(half, ranks))


def start(control: Control, rank: int, severity: float) -> Callable[[], None]:
    members = node(rank, control.config.ranks)

    def turn(number: int) -> None:
        control.busy(members[(number - 1) % len(members)], 0.0)
        control.busy(members[number % len(members)], _SECONDS * severity)

    stop = control.every(_TURN * control.config.slowdown, turn)

    def end() -> None:
        stop()
        for member in members:
            control.busy(member, 0.0)

    return end


FAULT = Fault(
    id="slow_node",
    klass="single-point",
    about="All ranks of one half of the group straggle in turn.",
    start=start,
    scale="1 is 60 ms of CPU a step for the late one",
    ranks=node,
)
