"""Which signals of the catalogue a target gives, and which verdicts are impossible or weaker for want of the others. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum

import numpy as np

from collector import enabling, signals
from collector.model import Problem, Window
from collector.signals import CATALOGUE, Scope, Signal
from diagnose.engine import diagnose
from diagnose.model import NoData, Outcome
from diagnose.rules import Rule
from slowrank.changes import covers, least

OF_DECODING = frozenset({signals.DECODE_STEPS, signals.DECODE_TIME, signals.ACCEPT_LENGTH, signals.GRAPH_STEPS, signals.EAGER_STEPS})
"""Signals that a prefill server has no reason to show: it decodes nothing."""

OF_HAND_OVER = frozenset(
    {signals.BOOTSTRAP_QUEUE, signals.INFLIGHT_QUEUE, signals.PREALLOC_QUEUE, signals.TRANSFER_QUEUE}
    | {signals.TRANSFER_SPEED, signals.TRANSFER_LATENCY}
)
"""Signals of a split engine alone."""

BESIDE = {"prefill": OF_DECODING, "unified": OF_HAND_OVER}
"""By the engine's role, what does not apply to it."""


class State(Enum):
    """How a signal looks on a target."""

    SEEN = "seen"
    PARTLY = "seen on some ranks"
    FROZEN = "frozen"  # there, as a number that stands still while the engine works
    UNSEEN = "not seen"
    BESIDE = "does not apply"


@dataclass(frozen=True, slots=True)
class Sighting:
    """One signal: on which ranks it was seen, on which not, on which of those it stands still, and which rules need it."""

    signal: Signal
    state: State
    unseen: tuple[int, ...]
    frozen: tuple[int, ...]
    rules: tuple[str, ...]

    @property
    def there(self) -> bool:
        """On every rank, or with no reason to be."""
        return self.state in (State.SEEN, State.BESIDE)


@dataclass(frozen=True, slots=True)
class Blocked:
    """A rule that lacks some of what it needs, and the changes that would give it all."""

    rule: Rule
    lacks: tuple[str, ...]
    changes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Remedy:
    """The verdicts that become possible with one set of changes: usually one restart with one flag."""

    changes: tuple[str, ...]
    blocked: tuple[Blocked, ...]


@dataclass(frozen=True, slots=True)
class Checkup:
    """What one engine gives, and what can be concluded from it."""

    engine: str
    kind: str
    ranks: tuple[int, ...]
    sightings: tuple[Sighting, ...]
    impossible: tuple[Remedy, ...]  # most verdicts first
    weaker: tuple[Blocked, ...]
    problems: tuple[Problem, ...]

    @property
    def complete(self) -> bool:
        """Every signal of the engine itself on every rank. What cards and processes would add is offered, not missed."""
        return all(s.there or s.signal.optional for s in self.sightings)


def examine(window: Window, rules: Mapping[str, Rule]) -> Checkup:
    """Hold a window against the catalogue and the rules. A rule that lacks a signal is asked all the same: what it answers without it is
    weaker, what it cannot answer is impossible today."""
    sightings = tuple(_sighting(window, signal, rules) for signal in CATALOGUE.values() if signal.only in {"", window.engine.kind})
    lacking = {s.signal.name for s in sightings if not s.there}
    outcomes = {said.rule: said.outcome for said in diagnose(window, rules=rules).outcomes}
    blocked = [
        _blocked(rule, lacks, window.engine.kind)
        for rule in rules.values()
        if (lacks := tuple(name for name in rule.needs if name in lacking)) and not _unasked(window, rule)
    ]
    mute = [each for each in blocked if _impossible(outcomes[each.rule.id], each)]
    return Checkup(
        engine=window.engine.id,
        kind=window.engine.kind,
        ranks=window.ranks,
        sightings=sightings,
        impossible=_remedies(mute),
        weaker=tuple(each for each in blocked if each not in mute),
        problems=window.problems,
    )


def _unasked(window: Window, rule: Rule) -> bool:
    """Whether a rule looks at a source, cards or processes, that was not given at all: it is not blocked, it was not asked."""
    optional = [name for name in rule.needs if CATALOGUE[name].optional]
    return bool(optional) and not window.has_any(*optional)


def _sighting(window: Window, signal: Signal, rules: Mapping[str, Rule]) -> Sighting:
    signal = replace(signal, enable=enabling.enable(signal.name, window.engine.kind))
    needing = tuple(rule.id for rule in rules.values() if signal.name in rule.needs)
    whole = signal.scope is Scope.ENGINE
    rows = window.get(signal.name)
    seen = tuple(rank for row, rank in enumerate(window.ranks) if np.isfinite(rows[0 if whole else row]).any())
    unseen = tuple(rank for rank in window.ranks if rank not in seen)
    frozen = tuple(rank for rank in window.frozen.get(signal.name, ()) if rank in unseen)
    state = State.PARTLY if seen else State.FROZEN if frozen else State.UNSEEN
    if seen and not unseen:
        state = State.SEEN
    elif not seen and signal.name in BESIDE.get(window.engine.facts.role or "", ()):
        state, unseen = State.BESIDE, ()
    return Sighting(signal, state, unseen, frozen, needing)


def _blocked(rule: Rule, lacks: tuple[str, ...], kind: str) -> Blocked:
    return Blocked(rule, lacks, least(enabling.enable(name, kind) for name in lacks))


def _impossible(outcome: Outcome, blocked: Blocked) -> bool:
    return isinstance(outcome, NoData) and bool(set(outcome.missing) & set(blocked.lacks))


def _remedies(mute: list[Blocked]) -> tuple[Remedy, ...]:
    """The rules that cannot answer, by the changes that let them; a change counts what it brings beside its own."""
    groups: dict[tuple[str, ...], list[Blocked]] = {}
    for each in mute:
        groups.setdefault(each.changes, []).append(each)

    def enables(changes: tuple[str, ...]) -> int:
        return sum(all(any(covers(made, asked) for made in changes) for asked in each.changes) for each in mute)

    ordered = sorted(groups, key=lambda changes: (-enables(changes), len(changes), changes))
    return tuple(Remedy(changes, tuple(groups[changes])) for changes in ordered)
