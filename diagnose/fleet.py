"""Engines that serve the same thing, as each other's measure where there is no healthy past. Pure.

Twins carry different load, so a twin's step time is moved to this engine's load first, with the arithmetic that moves a past there
(`over_past.excess`). Then the twins vote: an engine is slow only against more than half of them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from collector.model import Window
from diagnose import attribution, over_past
from diagnose.model import Share

QUORUM = 2
"""Twins without which nobody is measured: of two engines that differ, either may be the odd one. Arithmetic, not a measurement."""


@dataclass(frozen=True, slots=True)
class Measure:
    """What the twins say about an engine: the twin in the middle, and the excess over it."""

    twin: Window
    excess: over_past.Excess
    tokens_ratio: float  # tokens per step against that twin's
    twins: int  # that carry comparable load


def twins(window: Window, others: Iterable[Window]) -> tuple[Window, ...]:
    """Those of `others` that serve the same as `window`: kind, model, version, role, card and number of ranks. Engines that do not say
    their model, version or role have none."""
    mine = _identity(window)
    if mine is None:
        return ()
    return tuple(other for other in others if other.engine.id != window.engine.id and _identity(other) == mine)


def _identity(window: Window) -> tuple[object, ...] | None:
    facts = window.engine.facts
    if not window.ranks or None in (facts.model, facts.version, facts.role):
        return None
    return (window.engine.kind, facts.model, facts.version, facts.role, facts.accelerator, len(window.ranks))


def measure(window: Window, beside: Iterable[Window], host: Share | None, tokens: float) -> Measure | None:
    """The cadence of `window` above what its twins take for the same load; None with fewer than QUORUM twins to compare with.

    `host`: share of step time that its host waits cost. `tokens`: factor of tokens per step up to which load is comparable. Of the
    twins, ordered by how slow they make this engine look, the lower middle one counts: more than half say at least as much.
    """
    found: list[Measure] = []
    for twin in beside:
        over = over_past.excess(window, twin, attribution.pair_load(window, twin), host)
        if over is not None and over.tokens_ratio is not None and 1 / tokens <= over.tokens_ratio <= tokens:
            found.append(Measure(twin, over, over.tokens_ratio, 0))
    if len(found) < QUORUM:
        return None
    found.sort(key=lambda each: each.excess.share.mid)
    return replace(found[(len(found) - 1) // 2], twins=len(found))
