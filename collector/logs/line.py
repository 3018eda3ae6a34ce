"""What one line of an engine's log says in canonical terms. Frozen, no IO."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import isfinite
from typing import NamedTuple

from collector.model import Source


class Stamp(NamedTuple):
    """A line's time as it is written; `year` None: the form has none."""

    year: int | None
    month: int
    day: int
    hour: int
    minute: int
    second: int


@dataclass(frozen=True, slots=True)
class Line:
    """One report of one rank. `part` is the process within the rank that wrote it; the lowest one speaks."""

    source: Source
    stamp: Stamp
    rank: int | None  # None: the line names none
    part: int
    gauges: Mapping[str, float]
    adds: Mapping[str, float] = field(default_factory=dict)  # signal or helper -> its growth by this line
    rate: float | None = None  # output tokens per second since the rank's line before
    tokens_a_step: float | None = None  # output tokens of one decode step
    writer: str = ""  # process or container that wrote it, where the line tells


_WRITER = re.compile(r"\bpid=(\d{1,10})\)|\S\[(\d{1,10})\]: |^(\S{1,80})\s{1,80}\| ")
"""vLLM's own mark, journald's, and that of docker compose."""


def writer_of(text: str) -> str:
    """Who wrote a line, by what stands before the engine's own words; empty where nothing tells."""
    found = _WRITER.search(text[:200])
    return next((part for part in found.groups() if part), "") if found else ""


def number(text: str) -> float | None:
    """A finite number that is not negative, of at most 20 characters; None for anything else."""
    if not 0 < len(text) <= 20:
        return None
    try:
        value = float(text)
    except ValueError:
        return None
    return value if isfinite(value) and value >= 0 else None
