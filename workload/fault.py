"""What a fault is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from workload.config import ClusterConfig, DeviceKind
from workload.control import Control

Start = Callable[[Control, int, float], Callable[[], None]]
Class = Literal["single-point", "load", "structural", "neither", "healthy"]


def _nothing(_: ClusterConfig) -> str | None:
    return None


def _itself(rank: int, _: int) -> tuple[int, ...]:
    return (rank,)


@dataclass(frozen=True, slots=True)
class Fault:
    """A cause that can be injected. `start(control, rank, severity)` begins it and returns how to end it.

    `klass` is the class that a diagnosis should find; `neither` for what is no rank's doing and no load's, `healthy` for what looks
    odd and must raise no alarm.

    `severity` is the default, and 1 unless the file says what else a number means; `scale` says what it does, in a few words, and
    `most` is what still makes sense. With `ramps`, `start` may be called again with another severity while the fault acts: the
    newest end then ends all of it.

    With `whole_group` the rank means nothing. Otherwise `ranks(rank, how many there are)` are those that it makes ill. `lacks(config)`
    says what a cluster needs for it, and has not.
    """

    id: str
    klass: Class
    about: str
    start: Start
    scale: str
    devices: tuple[DeviceKind, ...] = ("virtual", "cpu", "cuda")
    severity: float = 1.0
    most: float = 2.0
    ramps: bool = False
    whole_group: bool = False
    ranks: Callable[[int, int], tuple[int, ...]] = _itself
    lacks: Callable[[ClusterConfig], str | None] = _nothing
