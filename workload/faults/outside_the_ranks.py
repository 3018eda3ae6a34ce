"""The front end sits on the answers: clients wait longer for their first token and their last, and no rank works any differently.

As behind an overloaded detokenizer. Severity 1 keeps every answer for one second.
"""

from __future__ import annotations

from collections.abc import Callable

from workload.control import Control
from workload.fault import Fault

_SECONDS = 1.0


def start(control: Control, rank: int, severity: float) -> Callable[[], None]:  # noqa: ARG001  # all ranks alike
    control.hold_answers(_SECONDS * severity)
    return lambda: control.hold_answers(0.0)


FAULT = Fault(
    id="outside_the_ranks",
    klass="neither",
    about="The front end delays every answer; the ranks work as before.",
    start=start,
    scale="seconds that an answer is kept",
    most=10.0,
    ramps=True,
    whole_group=True,
)
