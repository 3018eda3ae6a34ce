"""Finds what a package holds: one `FAULT` a module."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterable

from workload.fault import Fault


def found(package: str, path: Iterable[str]) -> dict[str, Fault]:
    """By id, in order of the modules' names."""
    modules = [importlib.import_module(f"{package}.{info.name}") for info in pkgutil.iter_modules(path)]
    return {module.FAULT.id: module.FAULT for module in modules}
