"""The rooms of slowrank have plain names (collector, diagnose, ...); make sure that the ones imported are ours."""

from __future__ import annotations

import importlib.util
from pathlib import Path

ROOMS = ("collector", "diagnose", "dashboards", "workload")


def stranger(rooms: tuple[str, ...] = ROOMS) -> str | None:
    """What to tell the user when a room would be imported from elsewhere than beside this package, else None."""
    home = Path(__file__).resolve().parent.parent
    for room in rooms:
        spec = importlib.util.find_spec(room)
        places = [Path(place).resolve() for place in (spec.submodule_search_locations or ())] if spec else []
        if home / room not in places:
            where = places[0] if places else (spec.origin if spec and spec.origin else "nowhere")
            return f"{room} was imported from {where}, not from {home / room}; unset PYTHONPATH"
    return None
