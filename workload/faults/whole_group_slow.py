"""Every forward takes longer on all cards alike, as SGLang's own `/slow_down` does it.

No rank stands out in load, waits or experts. Severity 1 is a factor of 1.4; 0.5 is 1.2.
"""

from __future__ import annotations

from collections.abc import Callable

from workload.control import Control
from workload.fault import Fault

_EXCESS = 0.4


def start(control: Control, rank: int, severity: float) -> Callable[[], None]:  # noqa: ARG001  # all ranks alike
    control.stretch(1 + _EXCESS * severity)
    return lambda: control.stretch(1.0)


FAULT = Fault(
    id="whole_group_slow",
    klass="neither",
    about="Every forward takes longer on all cards alike.",
    start=start,
    scale="1 is 1.4 times the time",
    ramps=True,
    whole_group=True,
)
