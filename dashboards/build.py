"""All generated files: what each holds, whether the committed ones are as they should be, and writing them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from dashboards import diagnosis, engine, fleet, itself, rank, rules

PAGES = (fleet, engine, rank, diagnosis, itself)
"""In the order in which one goes through them."""


def pages() -> dict[str, dict[str, Any]]:
    """File name -> dashboard."""
    return {f"{made['uid']}.json": made for made in (page.dashboard() for page in PAGES)}


def page_files() -> dict[str, str]:
    """File name -> text, of the dashboards. The same on every machine: keys sorted, a final newline."""
    return {name: json.dumps(made, indent=2, sort_keys=True, ensure_ascii=False) + "\n" for name, made in pages().items()}


def rule_files(runbooks: str = "") -> dict[str, str]:
    """File name -> text, of the rules. `runbooks`: see `dashboards.rules.text`."""
    return {rules.FILE: rules.text(runbooks)}


def write(files: Mapping[str, str], folder: Path) -> list[Path]:
    """Write the files into the folder, which is made if it is not there; what changed. OSError when that cannot be done."""
    folder.mkdir(parents=True, exist_ok=True)
    changed = [folder / name for name in drift(files, folder)]
    for path in changed:
        path.write_text(files[path.name], encoding="utf-8")
    return changed


def drift(files: Mapping[str, str], folder: Path) -> list[str]:
    """Names of those that are missing in the folder or differ there."""
    return [name for name, text in files.items() if _read(folder / name) != text]


def strangers(files: Iterable[str], folder: Path, suffix: str) -> list[str]:
    """Files of that suffix in the folder that we no longer make."""
    return sorted({path.name for path in folder.glob(f"*{suffix}")} - set(files))


def _read(path: Path) -> str | None:
    return path.read_text(encoding="utf-8") if path.is_file() else None
