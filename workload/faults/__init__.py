"""One file per fault, named as the rule it must trigger.

`load()` finds them; nothing happens on import. A file holds one `FAULT`; adding one edits no shared file.
"""

from __future__ import annotations

from functools import cache

from workload.discovery import found
from workload.fault import Fault


@cache
def load() -> dict[str, Fault]:
    """All faults by id."""
    return found(__name__, __path__)
