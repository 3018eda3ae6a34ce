"""What the engine's clock lets waits say. Pure.

Waits between ranks are measured only where metadata is exchanged before each forward. The rules that read them begin here.
"""

from __future__ import annotations

from collector import signals
from collector.model import Clock
from diagnose.case import Case
from diagnose.model import Healthy, NoData

SHARED = (
    "one rank may be slow, and vLLM's metrics cannot say which: with experts all ranks' steps are equally long, and no wait is measured;"
    " the processes' CPU and run-queue delay, the cards' clocks, or one long prompt pinned to each rank in turn would tell"
)
UNTOLD = (
    "whether the ranks share a clock does not show in vLLM's metrics (it has one if the model has experts: say so with --clock lockstep, or"
    " --clock independent)"
)

_EQUAL = "Step time is equal on all ranks of a lockstep group and identifies no one by itself."
NOTES = {
    Clock.EXCHANGE: _EQUAL,
    Clock.FORWARD: _EQUAL,
    Clock.NONE: "Each rank steps at its own pace; shares are of the named rank's own step time.",
    Clock.UNKNOWN: "Whether the ranks' step times are one figure or each its own did not show.",
}
"""What a reader of a report has to know of the clock."""


def no_waits(case: Case) -> Healthy | NoData | None:
    """The answer of a rule about waits on an engine whose clock shows none; None where waits are measured."""
    match case.window.engine.clock:
        case Clock.EXCHANGE:
            return None
        case Clock.NONE:
            return Healthy("the ranks have no common clock: none waits for another")
        case Clock.FORWARD:
            return NoData((signals.SYNC_WAIT,), SHARED)
        case Clock.UNKNOWN:
            return NoData((signals.SYNC_WAIT,), UNTOLD)
