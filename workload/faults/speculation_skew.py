"""The draft model guesses badly for one rank's requests: they get fewer tokens a step and stay longer.

Verifying costs the rank as much as before, so its batch, its KV and its pairs grow while every step yields less. Severity 1 leaves a
tenth of the chance that a draft is accepted: with three drafts at .7, 2.53 tokens a step become 1.07.
"""

from __future__ import annotations

from collections.abc import Callable

from workload.config import ClusterConfig
from workload.control import Control
from workload.fault import Fault

_LOST = 0.9


def start(control: Control, rank: int, severity: float) -> Callable[[], None]:
    control.accept(rank, 1 - _LOST * severity)
    return lambda: control.accept(rank, 1.0)


def lacks(config: ClusterConfig) -> str | None:
    return "the engine does not speculate; give it speculation" if config.engine.speculation is None else None


FAULT = Fault(
    id="speculation_skew",
    klass="load",
    about="Drafted tokens are seldom accepted on one rank.",
    start=start,
    scale="chance of acceptance lost: 1 leaves a tenth of it",
    most=1.1,
    ramps=True,
    lacks=lacks,
)
