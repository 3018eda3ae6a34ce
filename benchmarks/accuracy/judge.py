"""The truth beside what was said. The only module that opens label files."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from benchmarks.accuracy.effect import MARGIN
from benchmarks.accuracy.observe import Observed, Said
from benchmarks.accuracy.plan import Spec
from collector import signals
from diagnose import rules
from diagnose.model import Class, Severity
from workload import faults, labels

CARD = ("gpu_throttled", "gpu_degraded", "link_degraded", "dispatch_skew")
"""Faults of a card, a link or the fabric: in an engine's own metrics all four are a longer step for everybody, and nothing else."""
HIDDEN_RISE = 1.05
"""Overlap hides a late host whose step time rises by less: it costs nothing, and blaming it would be a false alarm. The limit is the size
from which rules blame a cause."""
TOLD_BY_AGE = ("stale_ledger",)
"""Faults that are an age of what others act on, and need not show in any figure of `effect` to be there."""
NO_NEWS = frozenset({"hidden", "none"})
"""Truths of which `healthy` is the right word."""
BLAMED = (Class.SINGLE_POINT.value, Class.LOAD.value, Class.STRUCTURAL.value, Class.OUTSIDE.value)


@dataclass(frozen=True, slots=True)
class Truth:
    """One injected fault. `tells`: `metrics` an engine's pages can show it; `card` only hardware evidence can, and there was none;
    `hidden` a host fault that costs nothing; `none` a fault of load or layout that did nothing under this traffic; `group` nothing can
    name it, insufficient evidence is the answer."""

    fault: str
    klass: str
    ranks: frozenset[int]
    severity: float
    tells: str


@dataclass(frozen=True, slots=True)
class Judged:
    """A run with its truth and everything said of it. No truth: nothing was wrong."""

    spec: Spec
    truths: tuple[Truth, ...]
    observed: Observed

    @property
    def truth(self) -> Truth:
        """The only fault. Raises ValueError where there are none or several."""
        (one,) = self.truths
        return one

    @property
    def tellable(self) -> bool:
        """Whether an engine's pages can show every fault of the run."""
        return all(t.tells == "metrics" for t in self.truths)


def judge(spec: Spec, path: Path, observed: Observed) -> Judged:
    """Opens the label file of a run."""
    return Judged(spec, tuple(_truth(label, observed) for label in labels.read(path)), observed)


def onset(path: Path) -> float:
    """When the first fault of a label file began, unix seconds. Raises ValueError when there is none."""
    return min(label.start for label in labels.read(path))


def _truth(label: labels.Label, observed: Observed) -> Truth:
    fault = faults.load()[label.fault]
    rule = rules.load().get(label.fault)
    klass = fault.klass if fault.klass != "neither" else rule.klass.value if rule else Class.OUTSIDE.value
    ranks = frozenset(label.ranks) or (frozenset() if label.rank is None else frozenset((label.rank,)))
    if klass == Class.INSUFFICIENT.value:
        tells = "group"
    elif label.fault in CARD:
        tells = "metrics" if rule is not None and _read(rule, observed.signals) else "card"
    elif klass == Class.SINGLE_POINT.value and observed.rise < HIDDEN_RISE:
        tells = "hidden"
    elif klass != Class.SINGLE_POINT.value and label.fault not in TOLD_BY_AGE and observed.moved < MARGIN:
        tells = "none"
    else:
        tells = "metrics"
    return Truth(label.fault, klass, ranks, label.severity, tells)


def _read(rule: rules.Rule, seen: frozenset[str]) -> bool:
    """Whether the source that a rule lives on was read at all."""
    optional = [name for name in rule.needs if signals.CATALOGUE[name].optional]
    return not optional or any(name in seen for name in optional)


def class_right(said: Said, truth: Truth) -> bool:
    """The class is the injected fault's."""
    return said.klass == truth.klass


def cause_right(said: Said, truth: Truth) -> bool:
    """The first cause is the injected fault."""
    return said.cause == truth.fault


def ranks_right(said: Said, truth: Truth) -> bool:
    """Exactly the ranks that the fault made ill are named."""
    return frozenset(said.ranks) == truth.ranks


def blames(said: Said) -> bool:
    """Whether a class is blamed. A note blames nobody: it is shown and told to no one."""
    return said.klass in BLAMED and said.severity != Severity.NOTE.value


def right(said: Said, truths: tuple[Truth, ...]) -> bool:
    """Whether a person who acts on the verdict does right: class and cause of one injected fault, and no rank named that is not its own.

    For `healthy`, that nothing was wrong or that it costs nothing; for a slow group of unknown cause, that the cause cannot be told.
    """
    if said.klass == Class.HEALTHY.value:
        return all(t.tells in NO_NEWS for t in truths)
    if said.klass == Class.INSUFFICIENT.value:
        return bool(truths) and all(t.tells in {"card", "group"} for t in truths)
    return any(
        class_right(said, t) and cause_right(said, t) and frozenset(said.ranks) <= (t.ranks or frozenset(said.ranks)) for t in truths
    )
