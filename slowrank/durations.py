"""Durations as people write them: 20s, 2m, 1h, 1m30s."""

from __future__ import annotations

import re

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h)", re.ASCII)
LONGEST = 24 * 3600.0
"""A day: above it the number is a slip of the finger, and a collection that long belongs into Prometheus."""


def parse_duration(text: str) -> float:
    """Seconds. Raises ValueError that says what was seen and how to write it."""
    parts = _PART.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        raise ValueError(f"{text!r} is no duration; write it as 20s, 2m, 1h or 1m30s")
    seconds = sum(float(number) * _UNITS[unit] for number, unit in parts)
    if not 0 < seconds <= LONGEST:
        raise ValueError(f"{text!r} is {seconds:g} s; a duration lies above 0 and within a day (24h)")
    return seconds
