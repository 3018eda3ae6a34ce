"""A checkup for a person, and for a program. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any

from diagnose.report.plain import prose, safe, wrap
from slowrank.doctor import Blocked, Checkup, Remedy, Sighting, State

SCHEMA = "slowrank.doctor/1"


def render(checkup: Checkup, width: int) -> str:
    """What is missing first, by the flag that turns it on; then the verdicts that are impossible or weaker without it."""
    there = [s.signal.name for s in checkup.sightings if s.state is State.SEEN]
    beside = [s.signal.name for s in checkup.sightings if s.state is State.BESIDE]
    count = f"{len(there)} of {len(checkup.sightings) - len(beside)} signals on all {len(checkup.ranks)} ranks"
    lines = [f"{safe(checkup.engine, 160)} ({safe(checkup.kind)}): {count}; {_verdicts(checkup)}"]
    if checkup.problems:
        lines += ["", "Problems while reading"]
        for problem in checkup.problems:
            lines += _paragraph(f"- {prose(str(problem))}", width)
    for enable, lost in _by_flag(checkup.sightings).items():
        lines += ["", *wrap(f"To get {len(lost)} more, {enable}:", width)]
        for sighting in lost:
            lines += _paragraph(_what(sighting), width)
    if any(s.frozen for s in checkup.sightings):
        lines += ["", *wrap("Frozen: the page holds the number, and it stands still while the engine works.", width)]
    if there:
        lines += ["", "Seen", *_paragraph(", ".join(there), width)]
    if beside:
        lines += ["", "Do not apply to an engine of this role", *_paragraph(", ".join(beside), width)]
    if checkup.impossible:
        lines += ["", "Verdicts impossible today, and what makes them possible"]
        for number, remedy in enumerate(checkup.impossible, 1):
            lines += _remedy(number, remedy, width)
    if checkup.weaker:
        lines += ["", "Verdicts possible but weaker"]
        for each in checkup.weaker:
            lines += _paragraph(f"- {each.rule.id} ({each.rule.klass.value}): without {', '.join(each.lacks)}", width)
    return "\n".join(lines) + "\n"


def to_json(checkups: Sequence[Checkup]) -> dict[str, Any]:
    """The same for programs."""
    return {"schema": SCHEMA, "engines": [_engine(c) for c in checkups]}


def _engine(checkup: Checkup) -> dict[str, Any]:
    mute = [each for remedy in checkup.impossible for each in remedy.blocked]
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
                "state": s.state.value,
                "missing_on_ranks": list(s.unseen),
                "frozen_on_ranks": list(s.frozen),
                "enable": s.signal.enable,
                "adds": s.signal.adds,
                "rules": list(s.rules),
            }
            for s in checkup.sightings
        ],
        "blocked_rules": {each.rule.id: list(each.lacks) for each in (*mute, *checkup.weaker)},
        "impossible": [
            {"changes": list(remedy.changes), "rules": [_rule(each) for each in remedy.blocked]} for remedy in checkup.impossible
        ],
        "weaker": [{"changes": list(each.changes), **_rule(each)} for each in checkup.weaker],
        "problems": [asdict(p) for p in checkup.problems],
    }


def _rule(each: Blocked) -> dict[str, Any]:
    return {"rule": each.rule.id, "class": each.rule.klass.value, "title": each.rule.title, "lacks": list(each.lacks)}


def _verdicts(checkup: Checkup) -> str:
    impossible = sum(len(remedy.blocked) for remedy in checkup.impossible)
    if not impossible and not checkup.weaker:
        return "every rule can answer"
    return f"{impossible} verdicts impossible today, {len(checkup.weaker)} weaker"


def _remedy(number: int, remedy: Remedy, width: int) -> Iterable[str]:
    yield from _paragraph(f"{number}. {'; and '.join(remedy.changes)}:", width)
    for each in remedy.blocked:
        title = each.rule.title.rstrip(".")
        yield from wrap(f"- {each.rule.id} ({each.rule.klass.value}): {title}; lacks {', '.join(each.lacks)}", width, "     ", "       ")


def _by_flag(sightings: Sequence[Sighting]) -> dict[str, list[Sighting]]:
    """What is missing, by how to get it; the flag that unblocks most rules first."""
    groups: dict[str, list[Sighting]] = {}
    for sighting in sightings:
        if not sighting.there:
            groups.setdefault(sighting.signal.enable, []).append(sighting)
    return dict(sorted(groups.items(), key=lambda item: -len({rule for s in item[1] for rule in s.rules})))


def _what(sighting: Sighting) -> str:
    signal = sighting.signal
    rules = f"; needed by: {', '.join(sighting.rules)}" if sighting.rules else ""
    return f"- {signal.name}{_where(sighting)} ({signal.about}): {signal.adds}{rules}"


def _where(sighting: Sighting) -> str:
    if sighting.frozen:
        return " is frozen" if sighting.state is State.FROZEN else f" is frozen on ranks {', '.join(map(str, sighting.frozen))}"
    return f" is missing on ranks {', '.join(map(str, sighting.unseen))} only" if sighting.state is State.PARTLY else ""


def _paragraph(text: str, width: int) -> list[str]:
    return wrap(text, width, "  ", "    ")
