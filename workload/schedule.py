"""Which faults a run injects, and when: written `fault:rank=0,onset=20,duration=30,severity=0.5`."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Scheduled:
    """A fault that begins `onset` seconds after the start and lasts `duration` seconds (for good by default)."""

    fault: str
    rank: int | None = None
    onset: float = 0.0
    duration: float = math.inf
    severity: float | None = None


_FIELDS = {"rank": int, "onset": float, "duration": float, "severity": float}


def parse(text: str) -> Scheduled:
    """Reads one fault. Raises ValueError that names what it does not understand."""
    fault, _, rest = text.partition(":")
    values: dict[str, int | float] = {}
    for part in filter(None, rest.split(",")):
        key, _, value = part.partition("=")
        if key not in _FIELDS:
            raise ValueError(f"{text!r}: {key!r} is not one of {', '.join(_FIELDS)}")
        try:
            values[key] = _FIELDS[key](value)
        except ValueError:
            raise ValueError(f"{text!r}: {key} must be a number, not {value!r}") from None
    return Scheduled(fault, **values)  # type: ignore[arg-type]  # _FIELDS holds each field's own type
