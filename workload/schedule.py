"""Which faults a run injects, and when: written `fault:rank=0,onset=20,ramp=5,duration=30,severity=0.5`. Pure.

A ramp raises the severity to its height in equal steps, for the faults that can change theirs while they act.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from workload import faults, harmless
from workload.config import ClusterConfig
from workload.fault import Fault
from workload.vllm.faults import lacks as vllm_lacks

RAMP_LEVELS = 5  # severities of a ramp: a fifth at its begin, all of it at its end


@dataclass(frozen=True, slots=True)
class Scheduled:
    """A fault that begins `onset` seconds after the start and lasts `duration` seconds (for good by default), `ramp` of them rising.

    Raises ValueError for a time or severity that makes no sense.
    """

    fault: str
    rank: int | None = None
    onset: float = 0.0
    duration: float = math.inf
    severity: float | None = None
    ramp: float = 0.0

    def __post_init__(self) -> None:
        for key, value in (("onset", self.onset), ("ramp", self.ramp)):
            if not 0 <= value < math.inf:
                raise ValueError(f"{key} {value:g}: give seconds, 0 or more")
        if not self.duration > 0:
            raise ValueError(f"duration {self.duration:g}: give seconds, more than 0, or leave it out to let the fault last")
        if self.ramp > self.duration:
            raise ValueError(f"ramp {self.ramp:g}: the fault lasts {self.duration:g} s; make the ramp shorter or the duration longer")
        if self.severity is not None and not 0 < self.severity < math.inf:
            raise ValueError(f"severity {self.severity:g}: give a number above 0; 1 is the fault's full strength")


@dataclass(frozen=True, slots=True)
class Moment:
    """What happens `at` seconds after the start: a fault begins, gets another severity, or ends."""

    at: float
    does: Literal["begin", "raise", "end"]
    what: Scheduled
    severity: float | None  # None: the fault's own


_FIELDS = {"rank": int, "onset": float, "ramp": float, "duration": float, "severity": float}


def parse(text: str) -> Scheduled:
    """Reads one fault. Raises ValueError that names what it does not understand."""
    fault, _, rest = text.partition(":")
    values: dict[str, int | float] = {}
    for part in filter(None, rest.split(",")):
        key, _, value = part.partition("=")
        if key not in _FIELDS:
            raise ValueError(f"{text!r}: {key!r} is not one of {', '.join(_FIELDS)}{_near(key, _FIELDS)}")
        if key in values:
            raise ValueError(f"{text!r}: {key} is given twice")
        try:
            values[key] = _FIELDS[key](value)
        except ValueError:
            raise ValueError(f"{text!r}: {key} must be a number, not {value!r}") from None
    try:
        return Scheduled(fault, **values)  # type: ignore[arg-type]  # _FIELDS holds each field's own type
    except ValueError as error:
        raise ValueError(f"{text!r}: {error}") from None


def known() -> dict[str, Fault]:
    """Everything that can be scheduled, by id: the faults, and the harmless events."""
    return faults.load() | harmless.load()


def find(name: str) -> Fault:
    """Raises ValueError with the nearest name."""
    everything = known()
    if name not in everything:
        near = difflib.get_close_matches(name, everything, n=1)
        hint = f"did you mean {near[0]}?" if near else "`slowrank workload faults` lists them"
        raise ValueError(f"there is no fault {name!r}; {hint}")
    return everything[name]


def check(schedule: Iterable[Scheduled], config: ClusterConfig) -> None:
    """Raises ValueError for anything that this cluster cannot do, before anything starts: found after an onset, it would cost the run."""
    seen: list[Scheduled] = []
    for planned in schedule:
        fault = find(planned.fault)
        allowed(fault, planned.rank, planned.severity, config)
        if planned.ramp and not fault.ramps:
            raise ValueError(f"{planned.fault}: cannot rise while it acts; leave the ramp out")
        for other in seen:
            if other.fault == planned.fault and (fault.whole_group or other.rank == planned.rank) and _meet(other, planned):
                raise ValueError(f"{planned.fault}: acts twice at the same time{_where(planned)}; let one end before the other begins")
        seen.append(planned)


def allowed(fault: Fault, rank: int | None, severity: float | None, config: ClusterConfig) -> None:
    """Raises ValueError if this cluster cannot have the fault on that rank, or not so strong."""
    if config.device not in fault.devices:
        raise ValueError(f"{fault.id}: cannot be made on device {config.device}, only on {' or '.join(fault.devices)}")
    if not fault.whole_group and (rank is None or not 0 <= rank < config.ranks):
        raise ValueError(f"{fault.id}: acts on one of ranks 0 to {config.ranks - 1}, not on {rank}; add rank=0 to rank={config.ranks - 1}")
    if severity is not None and not 0 < severity <= fault.most:
        raise ValueError(f"{fault.id}: severity {severity:g} is not between 0 and {fault.most:g}")
    if (missing := fault.lacks(config) or vllm_lacks(fault.id, config.vllm)) is not None:
        raise ValueError(f"{fault.id}: {missing}")


def moments(schedule: Sequence[Scheduled]) -> list[Moment]:
    """All that happens, in order of time; of what happens at once, ends come first."""
    found = []
    for s in schedule:
        levels = RAMP_LEVELS if s.ramp else 1
        full = s.severity if s.severity is not None or not s.ramp else find(s.fault).severity
        for level in range(1, levels + 1):
            at = s.onset + (s.ramp * (level - 1) / (levels - 1) if s.ramp else 0.0)
            severity = full if full is None or level == levels else full * level / levels
            found.append(Moment(at, "begin" if level == 1 else "raise", s, severity))
        if s.duration < math.inf:
            found.append(Moment(s.onset + s.duration, "end", s, None))
    return sorted(found, key=lambda m: (m.at, m.does != "end"))


def _meet(a: Scheduled, b: Scheduled) -> bool:
    return a.onset < b.onset + b.duration and b.onset < a.onset + a.duration


def _where(planned: Scheduled) -> str:
    return "" if planned.rank is None else f" on rank {planned.rank}"


def _near(key: str, names: Iterable[str]) -> str:
    near = difflib.get_close_matches(key, list(names), n=1)
    return f"; did you mean {near[0]}?" if near else ""
