"""What a fault is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from workload.config import DeviceKind
from workload.control import Control

Start = Callable[[Control, int, float], Callable[[], None]]


@dataclass(frozen=True, slots=True)
class Fault:
    """A cause that can be injected. `start(control, rank, severity)` begins it and returns how to end it.

    `klass` is the class that a diagnosis should find; `neither` for what is no rank's doing and no load's. `severity` is the
    default, and 1 unless the file says what else a number means. With `whole_group` the rank means nothing.
    """

    id: str
    klass: Literal["single-point", "load", "structural", "neither"]
    about: str
    start: Start
    devices: tuple[DeviceKind, ...] = ("virtual", "cpu")
    severity: float = 1.0
    whole_group: bool = False
