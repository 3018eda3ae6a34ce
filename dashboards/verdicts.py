"""Expressions on slowrank's verdicts that several pages show. `where` are matchers, `engine="$engine"` or nothing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from collector import exported
from dashboards.look import CLASSES, UNREAD
from dashboards.panels import by_name
from diagnose.rules import load


def class_numbers(where: str = "") -> str:
    """The class of each engine's verdict as its number in `look.CLASSES`, or that of `look.UNREAD`."""
    comma = f",{where}" if where else ""
    judged = " or ".join(
        f'max by (engine) ({exported.VERDICT}{{class="{klass.value}"{comma}}}) * {number}' for klass, (number, _) in CLASSES.items()
    )
    read = f"max by (engine) ({exported.ENGINE_UP}{{{where}}})"
    return f"({judged}) and on (engine) {read} == 1 or ({read} == 0) + {UNREAD[1]}"


def lost_time(where: str = "") -> str:
    """Share of step time lost per engine, all causes and what is unexplained."""
    return f"sum by (engine) (max by (engine, cause) ({exported.LOST}{{{where}}}))"


def lost_by_cause(where: str) -> str:
    """The same by cause."""
    return f"max by (cause) ({exported.LOST}{{{where}}})"


def cause_colours() -> Iterator[dict[str, Any]]:
    """Overrides that give each cause's line the colour of its class, as in the timelines of verdicts."""
    by_class: dict[str, list[str]] = {}
    for rule in load().values():
        by_class.setdefault(CLASSES[rule.klass][1], []).append(rule.id)
    for colour, causes in by_class.items():
        yield by_name("|".join(sorted(causes)), colour)
