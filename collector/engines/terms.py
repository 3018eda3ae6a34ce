"""What a metrics page says, as sums of its series: decided once by labels, then worked out for one page or for many at a time. Pure.

A page and an hour out of Prometheus hold the same series, so both take the same way: an engine file selects which series make up a signal
on a rank (`Selection`), and the values are put in here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import fsum, isfinite

import numpy as np

from collector.model import Facts, FloatArray, Problem


@dataclass(frozen=True, slots=True)
class Term:
    """A signal on a rank (-1: of the engine): `offset` and `factor` times the samples `plus` less the samples `minus`, by their place
    among the samples selected from. `zero`: it is 0 where none of its series is there, because another one proves a version that has it."""

    signal: str
    rank: int
    plus: tuple[int, ...]
    minus: tuple[int, ...] = ()
    factor: float = 1.0
    zero: bool = False
    offset: float = 0.0


@dataclass(frozen=True, slots=True)
class Selection:
    """What the series of one node mean. `speakers` as in a Reading."""

    terms: tuple[Term, ...]
    facts: Facts = field(default_factory=Facts)
    problems: tuple[Problem, ...] = ()
    speakers: Mapping[int, int] = field(default_factory=dict)


def at_once(terms: Sequence[Term], values: Sequence[float]) -> dict[str, dict[int, float]]:
    """Signal -> rank -> value on one page. A part that is NaN, infinite or negative is no reading, nor is a sum with it in it."""
    found: dict[str, dict[int, float]] = {}
    for term in terms:
        plus, minus = [values[i] for i in term.plus], [values[i] for i in term.minus]
        if all(isfinite(part) and part >= 0 for part in (*plus, *minus)) and (plus or term.zero):
            # fsum: its result does not depend on the order of the series, so an unchanged counter cannot seem to fall
            found.setdefault(term.signal, {})[term.rank] = fsum([*plus, *(-part for part in minus)]) * term.factor + term.offset
    return found


def over_time(terms: Sequence[Term], values: FloatArray) -> dict[str, dict[int, FloatArray]]:
    """Signal -> rank -> (n,) values, from (S, n) values of the samples selected from; there NaN says that a page does not hold the series,
    and infinity that it holds no number.

    A series that has not begun or has ended contributes nothing, as on a page; one that is missing in between was lost on its way, and
    makes the sum unknown: a sum without it would look like a counter that fell.
    """
    there = ~np.isnan(values)
    begun = np.maximum.accumulate(there, axis=1)
    going = np.maximum.accumulate(there[:, ::-1], axis=1)[:, ::-1]
    lost = begun & going & ~there
    usable = np.where(lost, np.inf, np.where(there & (values < 0), np.inf, values))
    found: dict[str, dict[int, FloatArray]] = {}
    for term in terms:
        parts = [*term.plus, *term.minus]
        if not parts:
            total = np.zeros(values.shape[1]) if term.zero else np.full(values.shape[1], np.nan)
        elif len(parts) == 1:
            total = usable[parts[0]] * term.factor
        else:
            signs = np.array([1.0] * len(term.plus) + [-1.0] * len(term.minus))[:, None]
            rows = usable[parts]
            broken = np.isinf(rows).any(axis=0)
            total = np.where(np.isfinite(rows), rows * signs, 0.0).sum(axis=0) * term.factor
            total[broken | np.isnan(rows).all(axis=0)] = np.nan
            total[broken] = np.inf
        if term.zero:
            total = np.where(np.isnan(total), 0.0, total)
        found.setdefault(term.signal, {})[term.rank] = np.where(np.isfinite(total), total + term.offset, np.nan)
    return found
