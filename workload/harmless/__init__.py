"""One file per event that makes a healthy cluster look uneven for a while, and must raise no alarm: injected as faults are.

`load()` finds them; nothing happens on import.
"""

from __future__ import annotations

from functools import cache

from workload.discovery import found
from workload.fault import Fault


@cache
def load() -> dict[str, Fault]:
    """All harmless events by id."""
    return found(__name__, __path__)
