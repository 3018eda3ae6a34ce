"""When an engine that never shows a rule's signals may still be called healthy (docs/decisions/0014). Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache

from collector import enabling, signals
from collector.model import Clock
from diagnose import front_end, group_pace, lockstep
from diagnose.case import Case
from diagnose.model import Class, NoData, Outcome
from diagnose.rules import Rule

BLAMED = (Class.SINGLE_POINT, Class.LOAD, Class.STRUCTURAL)

UNTESTED = 0.8
"""Factor on the confidence of `healthy` for each rule that could not look and is excused: the comparison with a past that was not given,
and structural rules when the step time is known not to have risen. SGLang reports expert load only when told to, and a group whose steps
are as short as ever has no hot experts that matter."""

UNCHANGED = 0.05
"""Share of step time within which it counts as unchanged against the past: the size from which rules blame a cause."""

AS_LOADED = 0.8
"""Times the past's load from which its step time is a measure: tokens per step of healthy windows differ by up to 1.13
(benchmarks/healthy_spread.py), and an engine with less to do can hide a slow rank."""


def never_shown(case: Case, outcome: NoData) -> bool:
    """Whether a rule could not look for signals alone that this kind of engine does not give, whatever flag is set."""
    kind = case.window.engine.kind
    return bool(outcome.missing) and not any(enabling.given(name, kind) for name in outcome.missing)


def experts_alone(outcome: NoData) -> bool:
    """Whether a rule lacks the experts' load alone, which SGLang reports only when told to."""
    return bool(outcome.missing) and set(outcome.missing) <= {signals.BALANCEDNESS_SUM, signals.BALANCEDNESS_COUNT}


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
    """Whether the step time is known to be what it was in the healthy past: at the same load, where that was fitted."""
    if case.excess is not None and case.excess.by_load is not None:
        return case.excess.share.mid < UNCHANGED and case.excess.share.high < 2.0 * UNCHANGED
    before = lockstep.cadence(case.baseline) if case.baseline else None
    return before is not None and case.step_time is not None and case.step_time - before < UNCHANGED * before


def _unchanged_as_loaded(case: Case) -> bool:
    if case.baseline is None or not unchanged(case):
        return False
    grown = group_pace.growth(case.window, case.baseline)
    return grown is not None and grown >= AS_LOADED


def silent(case: Case, rules: Mapping[str, Rule], outcomes: Mapping[str, Outcome]) -> dict[str, NoData]:
    """The rules that could not look and are not excused: without them nothing that is only a note, or nothing at all, is an answer."""
    unanswered = {rule_id: o for rule_id, o in outcomes.items() if isinstance(o, NoData) and not unread(case, rules[rule_id])}
    found = {rule_id: o for rule_id, o in unanswered.items() if _counts(case, rules[rule_id], o)}
    known = unchanged(case) and all(experts_alone(o) and rules[r].klass is Class.STRUCTURAL for r, o in found.items())
    return {} if known or excused(case, rules, found) else found


def _counts(case: Case, rule: Rule, outcome: NoData) -> bool:
    """Whether a rule must have looked before a window is healthy. The comparison with a past need not: where none was given, and on a
    prefill server, whose steps are as long as its prompts. Nor need what lies outside the ranks, as `healthy` speaks of the ranks; but if
    part of what would tell it was read, the rest was lost on the way."""
    if rule.klass is Class.OUTSIDE:
        return bool(outcome.missing) and case.window.has_any(*front_end.NEEDS[:2]) and not never_shown(case, outcome)
    return rule.klass in BLAMED or (rule.klass is Class.INSUFFICIENT and case.baseline is not None and not case.prefills)


def unread(case: Case, rule: Rule) -> bool:
    """Whether a rule has an optional source that was not read at all: then its silence says nothing about the engine."""
    optional = _optional(rule.needs)
    return bool(optional) and not case.window.has_any(*optional)


@cache
def _optional(needs: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(name for name in needs if signals.CATALOGUE[name].optional)


def untested(case: Case, unanswered: Iterable[NoData]) -> int:
    """How often the confidence of `healthy` is lowered: for each rule that could not look, and once for all whose signals the engine never
    shows, as one comparison stands in for them."""
    never = [never_shown(case, outcome) for outcome in unanswered]
    return len(never) - sum(never) + any(never)
