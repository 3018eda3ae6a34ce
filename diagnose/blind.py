"""When an engine that never shows a rule's signals may still be called healthy (docs/decisions/0014). Pure."""

from __future__ import annotations

from collections.abc import Mapping

from collector import enabling
from collector.model import Clock
from diagnose import group_pace, lockstep
from diagnose.case import Case
from diagnose.model import Class, NoData
from diagnose.rules import Rule

UNCHANGED = 0.05
"""Share of step time within which it counts as unchanged against the past: the size from which rules blame a cause."""

AS_LOADED = 0.8
"""Times the past's load from which its step time is a measure: tokens per step of healthy windows differ by up to 1.13
(benchmarks/healthy_spread.py), and an engine with less to do can hide a slow rank."""


def never_shown(case: Case, outcome: NoData) -> bool:
    """Whether a rule could not look for signals alone that this kind of engine does not give, whatever flag is set."""
    kind = case.window.engine.kind
    return bool(outcome.missing) and not any(enabling.given(name, kind) for name in outcome.missing)


def excused(case: Case, rules: Mapping[str, Rule], silent: Mapping[str, NoData]) -> bool:
    """Whether the rules that could not look need not have: what they look for would show in a step time that is as it should be.

    Without a common clock that is each rank's own, which `slow_rank` has then held against its peers'. With one, or when it is not known
    whether there is one, the group's against its healthy past under no less load.
    """
    if case.window.engine.clock is Clock.EXCHANGE or not case.long_enough:
        return False
    if case.window.engine.clock is Clock.NONE:
        return all(never_shown(case, outcome) for outcome in silent.values())
    return _unchanged_as_loaded(case) and all(never_shown(case, o) or rules[rule_id].klass is Class.LOAD for rule_id, o in silent.items())


def unchanged(case: Case) -> bool:
    """Whether the step time is known to be what it was in the healthy past."""
    before = lockstep.cadence(case.baseline) if case.baseline else None
    return before is not None and case.step_time is not None and case.step_time - before < UNCHANGED * before


def _unchanged_as_loaded(case: Case) -> bool:
    if case.baseline is None or not unchanged(case):
        return False
    grown = group_pace.growth(case.window, case.baseline)
    return grown is not None and grown >= AS_LOADED
