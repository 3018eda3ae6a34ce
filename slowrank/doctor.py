"""Which signals of the catalogue a target gives, how to get the others, and what they would add. Pure: a window in, a checkup out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from collector.model import Problem, Window
from collector.signals import CATALOGUE, Scope, Signal
from diagnose.report.plain import prose, safe, wrap
from diagnose.rules import Rule

SCHEMA = "slowrank.doctor/1"


@dataclass(frozen=True, slots=True)
class Sighting:
    """One signal: on which ranks it was seen, on which not, and which rules need it."""

    signal: Signal
    seen: tuple[int, ...]  # empty for a signal of the whole engine
    unseen: tuple[int, ...]
    there: bool  # on every rank
    rules: tuple[str, ...]

    @property
    def partly(self) -> bool:
        """Seen on some ranks, not on others."""
        return bool(self.seen) and bool(self.unseen)


@dataclass(frozen=True, slots=True)
class Checkup:
    """What one engine gives."""

    engine: str
    kind: str
    ranks: tuple[int, ...]
    sightings: tuple[Sighting, ...]
    blocked: Mapping[str, tuple[str, ...]]  # rule id -> the signals it lacks
    problems: tuple[Problem, ...]

    @property
    def complete(self) -> bool:
        """Every signal of the engine itself on every rank. What cards and processes would add is offered, not missed."""
        return all(s.there or s.signal.optional for s in self.sightings)


def examine(window: Window, rules: Mapping[str, Rule]) -> Checkup:
    """Hold a window against the catalogue and the rules' needs."""
    sightings = tuple(_sighting(window, signal, rules) for signal in CATALOGUE.values())
    lacking = {s.signal.name for s in sightings if not s.there}
    blocked = {
        rule.id: lacks
        for rule in rules.values()
        if (lacks := tuple(name for name in rule.needs if name in lacking)) and not _unasked(window, rule)
    }
    return Checkup(window.engine.id, window.engine.kind, window.ranks, sightings, blocked, window.problems)


def _unasked(window: Window, rule: Rule) -> bool:
    """Whether a rule looks at a source, cards or processes, that was not given at all: it is not blocked, it was not asked."""
    optional = [name for name in rule.needs if CATALOGUE[name].optional]
    return bool(optional) and not window.has_any(*optional)


def _sighting(window: Window, signal: Signal, rules: Mapping[str, Rule]) -> Sighting:
    needing = tuple(rule.id for rule in rules.values() if signal.name in rule.needs)
    if signal.scope is Scope.ENGINE or not window.has(signal.name):
        everyone = () if signal.scope is Scope.ENGINE else window.ranks
        return Sighting(signal, (), () if window.has(signal.name) else everyone, window.has(signal.name), needing)
    rows = window.get(signal.name)
    seen = tuple(rank for row, rank in enumerate(window.ranks) if np.isfinite(rows[row]).any())
    unseen = tuple(rank for rank in window.ranks if rank not in seen)
    return Sighting(signal, seen, unseen, not unseen, needing)


def render(checkup: Checkup, width: int) -> str:
    """The checkup for a person: what is missing first, grouped by the flag that turns it on."""
    there = [s for s in checkup.sightings if s.there]
    count = f"{len(there)} of {len(checkup.sightings)} signals on all {len(checkup.ranks)} ranks"
    blocked = "every rule can answer" if not checkup.blocked else f"{len(checkup.blocked)} rules cannot answer in full"
    lines = [f"{safe(checkup.engine, 160)} ({safe(checkup.kind)}): {count}; {blocked}"]
    if checkup.problems:
        lines += ["", "Problems while reading"]
        for problem in checkup.problems:
            lines += _paragraph(f"- {prose(str(problem))}", width)
    for enable, lost in _by_flag(checkup.sightings).items():
        lines += ["", *wrap(f"To get {len(lost)} more, {enable}:", width)]
        for sighting in lost:
            lines += _paragraph(_what(sighting), width)
    if there:
        lines += ["", "There", *_paragraph(", ".join(s.signal.name for s in there), width)]
    if checkup.blocked:
        lines += ["", "Rules that cannot answer in full", *_paragraph(", ".join(checkup.blocked), width)]
    return "\n".join(lines) + "\n"


def to_json(checkups: Sequence[Checkup]) -> dict[str, Any]:
    """The same for programs."""
    return {"schema": SCHEMA, "engines": [_engine(c) for c in checkups]}


def _engine(checkup: Checkup) -> dict[str, Any]:
    return {
        "engine": checkup.engine,
        "kind": checkup.kind,
        "ranks": list(checkup.ranks),
        "complete": checkup.complete,
        "signals": [
            {
                "signal": s.signal.name,
                "unit": s.signal.unit,
                "about": s.signal.about,
                "there": s.there,
                "missing_on_ranks": list(s.unseen),
                "enable": s.signal.enable,
                "adds": s.signal.adds,
                "rules": list(s.rules),
            }
            for s in checkup.sightings
        ],
        "blocked_rules": {rule: list(lacks) for rule, lacks in checkup.blocked.items()},
        "problems": [asdict(p) for p in checkup.problems],
    }


def _by_flag(sightings: Sequence[Sighting]) -> dict[str, list[Sighting]]:
    """What is missing, by how to get it; the flag that unblocks most rules first."""
    groups: dict[str, list[Sighting]] = {}
    for sighting in sightings:
        if not sighting.there:
            groups.setdefault(sighting.signal.enable, []).append(sighting)
    return dict(sorted(groups.items(), key=lambda item: -len({rule for s in item[1] for rule in s.rules})))


def _what(sighting: Sighting) -> str:
    signal = sighting.signal
    where = f" is missing on ranks {', '.join(map(str, sighting.unseen))} only" if sighting.partly else ""
    rules = f"; needed by: {', '.join(sighting.rules)}" if sighting.rules else ""
    return f"- {signal.name}{where} ({signal.about}): {signal.adds}{rules}"


def _paragraph(text: str, width: int) -> list[str]:
    return wrap(text, width, "  ", "    ")
