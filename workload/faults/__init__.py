"""One file per fault, named as the rule it must trigger.

`load()` finds them; nothing happens on import. A file holds one `FAULT`; adding one edits no shared file.
"""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache

from workload.fault import Fault


@cache
def load() -> dict[str, Fault]:
    """All faults by id."""
    modules = [importlib.import_module(f"{__name__}.{info.name}") for info in pkgutil.iter_modules(__path__)]
    return {module.FAULT.id: module.FAULT for module in modules}
