"""One rank no longer votes for the captured graphs, and the whole group launches its kernels one by one.

A step costs what eager launches cost: 4 ms more on a virtual card. Nothing else changes; the passes are counted as run without a
graph on every rank, so no page names the one that voted. Severity means nothing.
"""

from __future__ import annotations

from collections.abc import Callable

from workload.control import Control
from workload.fault import Fault


def start(control: Control, rank: int, severity: float) -> Callable[[], None]:  # noqa: ARG001  # there is no half of it
    control.vote_graph(rank, allowed=False)
    return lambda: control.vote_graph(rank, allowed=True)


FAULT = Fault(
    id="graph_fallback",
    klass="structural",
    about="One rank votes against CUDA graphs, and all ranks launch kernels one by one.",
    start=start,
    scale="means nothing",
    devices=("virtual",),  # the cpu device has no graphs to lose
    most=1.0,
)
