"""Rules and a window in, one adjudicated verdict out. Pure: the same function for a live window, a capture and a Prometheus."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from collector import enabling, promql, signals
from collector.model import Window
from diagnose import blind, change, loss, remedies
from diagnose.case import Case
from diagnose.confidence import calibration, told
from diagnose.model import (
    STEP_TIME,
    Class,
    EngineDiagnosis,
    Finding,
    Healthy,
    LostTime,
    Missing,
    NoData,
    Outcome,
    RuledOut,
    RuleOutcome,
    Severity,
    Share,
    Verdict,
)
from diagnose.notes import notes
from diagnose.plausible import plausible
from diagnose.rank_table import rank_rows
from diagnose.rules import Rule, load

SIGNIFICANT = 0.03
"""Share of step time from which a second cause is reported beside the first: below it, no action on it would be noticed."""

CERTAIN = 0.01
"""Share of step time from which a second cause is reported even so, if the low end of its range reaches it: it is there, and may cost more
once the first cause is gone. Chance costs healthy groups up to 0.015, but then no rule fires."""

UNEXPLAINED = 0.10
"""Share of step time, beyond the healthy past's own, that is lost without a finding and still counts as healthy. Healthy chat loses up
to 0.03 (chance deals unevenly, benchmarks/healthy_spread.py); twice what a rule blames a cause for must not be called healthy because no
rule knows the cause."""


@dataclass(frozen=True, slots=True)
class _Found:
    rule: Rule
    finding: Finding


def diagnose(
    window: Window,
    baseline: Window | None = None,
    rules: Mapping[str, Rule] | None = None,
    twins: Sequence[Window] = (),
    *,
    sure: Callable[[float, str], float] | None = None,
) -> EngineDiagnosis:
    """What a window says about its engine. `baseline`: a window of the same engine when it was healthy, if there is one. `twins`: windows
    of engines that serve the same (`fleet.twins`), which stand in where there is no baseline.

    `sure` turns what a rule states, and its id, into a confidence; None: `confidence.told`. Who measures it again leaves it as stated."""
    window = plausible(window)
    past = None if baseline is None else change.calm_part(plausible(baseline))
    case = Case(window, past, tuple(plausible(twin) for twin in twins))
    asked = rules if rules is not None else load()
    outcomes = {rule_id: _surely(case, rule, _ask(rule, case), sure) for rule_id, rule in asked.items()}
    verdict = _dated(window, _adjudicate(case, asked, outcomes))
    return EngineDiagnosis(
        engine=window.engine,
        start=window.start,
        end=window.end,
        scrapes=window.scrapes,
        ranks=rank_rows(case, verdict),
        step_time=case.step_time,
        verdict=verdict,
        outcomes=tuple(RuleOutcome(rule_id, outcome) for rule_id, outcome in outcomes.items()),
        problems=window.problems,
        notes=notes(case, verdict, outcomes.values()),
    )


def _dated(window: Window, verdict: Verdict) -> Verdict:
    also = tuple(replace(other, since=change.since(window, other)) for other in verdict.also)
    return replace(verdict, since=change.since(window, verdict), also=also)


def _ask(rule: Rule, case: Case) -> Outcome:
    """A rule's outcome; a rule that raises says so as NoData and must not silence the others."""
    try:
        return rule.ask(case)
    except Exception as error:  # noqa: BLE001 - the one place where a rule's failure is contained
        return NoData((), f"the rule failed: {type(error).__name__}: {error}")


def _surely(case: Case, rule: Rule, outcome: Outcome, sure: Callable[[float, str], float] | None) -> Outcome:
    if not isinstance(outcome, Finding):
        return outcome
    if sure is not None:
        return replace(outcome, confidence=sure(outcome.confidence, rule.id))
    return replace(outcome, confidence=told(outcome.confidence, rule.id, rule.klass, compared=case.baseline is not None))


def _adjudicate(case: Case, rules: Mapping[str, Rule], outcomes: Mapping[str, Outcome]) -> Verdict:
    found = [_Found(rules[rule_id], outcome) for rule_id, outcome in outcomes.items() if isinstance(outcome, Finding)]
    total = _lockstep_loss(case, found)
    found = _fitted(found, total)
    found.sort(key=lambda f: (_severity(f) is not Severity.NOTE, f.finding.share.mid, f.finding.confidence), reverse=True)
    kind = case.window.engine.kind
    # a source that nobody gave is not missed in every report: the doctor offers it, and a finding that needs it says so (would_tell)
    missing = _missing((o for rule_id, o in outcomes.items() if not blind.unread(case, rules[rule_id])), kind)
    lost = _lost_time(total, found)
    silent = blind.silent(case, rules, outcomes)
    if not found or (_severity(found[0]) is Severity.NOTE and any(outcome.missing for outcome in silent.values())):
        shown = tuple(_verdict(f, kind, LostTime(None), (), ()) for f in found)  # no answer while what tells worse could not be looked at
        return _nothing_found(case, rules, outcomes, silent, lost, missing, shown)
    first, *rest = found
    also = tuple(
        _verdict(f, kind, LostTime(f.finding.share.mid if f.finding.share_of == STEP_TIME else None), (), ())
        for f in rest
        if f.finding.share.mid >= SIGNIFICANT or f.finding.share.low >= CERTAIN
    )
    blamed = {first.rule.klass, *(v.klass for v in also)}
    open_cause = first.rule.klass is Class.INSUFFICIENT
    return _verdict(first, kind, lost, _ruled_out(case, rules, outcomes, blamed, open_cause=open_cause), missing, also)


def _severity(found: _Found) -> Severity:
    return found.finding.severity or found.rule.severity


def _verdict(
    found: _Found,
    kind: str,
    lost: LostTime,
    ruled_out: tuple[RuledOut, ...],
    missing: tuple[Missing, ...],
    also: tuple[Verdict, ...] = (),
) -> Verdict:
    rule, finding = found.rule, found.finding
    return Verdict(
        klass=rule.klass,
        cause=rule.id,
        ranks=finding.ranks,
        confidence=finding.confidence,
        summary=finding.summary,
        severity=_severity(found),
        share=finding.share,
        lost_time=lost,
        evidence=tuple(replace(shown, promql=promql.on(kind, shown.promql)) for shown in finding.evidence),
        ruled_out=ruled_out,
        missing=missing,
        remedy=remedies.of(rule.id, kind, rule.remedy),
        runbook=f"slowrank explain {rule.id}",
        would_tell=finding.would_tell,
        also=also,
        share_of=finding.share_of,
    )


def _nothing_found(
    case: Case,
    rules: Mapping[str, Rule],
    outcomes: Mapping[str, Outcome],
    silent: Mapping[str, NoData],
    lost: LostTime,
    missing: tuple[Missing, ...],
    also: tuple[Verdict, ...],
) -> Verdict:
    unanswered = [o for rule_id, o in outcomes.items() if isinstance(o, NoData) and not blind.unread(case, rules[rule_id])]
    if not case.working or silent or _unexplained(case, lost):
        return Verdict(
            klass=Class.INSUFFICIENT,
            cause=None,
            ranks=(),
            confidence=0.0,
            summary=_why_insufficient(case, silent, lost),
            severity=Severity.NOTE,
            share=None,
            lost_time=lost,
            ruled_out=_ruled_out(case, rules, outcomes, {v.klass for v in also}),
            missing=missing,
            remedy="Turn on what is missing (below), or diagnose again while the engine serves requests.",
            also=also,
        )
    return Verdict(
        klass=Class.HEALTHY,
        cause=None,
        ranks=(),
        confidence=round(calibration().healthy * blind.UNTESTED ** blind.untested(case, unanswered), 3),
        summary="no persistent loss of time has a cause among the ranks",
        severity=Severity.NOTE,
        share=None,
        lost_time=lost,
        ruled_out=_ruled_out(case, rules, outcomes, set(), open_cause=_unexplained(case, lost)),
        missing=missing,
    )


def _unexplained(case: Case, lost: LostTime) -> bool:
    """Whether so much is lost, more than in the healthy past, that a window without a finding is not healthy."""
    share = lost.share or 0.0
    return share >= UNEXPLAINED and share - loss.usual(case) >= UNEXPLAINED


def _why_insufficient(case: Case, silent: Mapping[str, NoData], lost: LostTime) -> str:
    if not case.working:
        return "the engine took no steps in this window: there is nothing to judge"
    if silent and not case.long_enough:
        seconds, intervals = case.window.end - case.window.start, len(case.window.edges) - 1
        return f"the window is {seconds:.0f} s long, in {intervals} intervals: too short to show that anything persists; read for longer"
    if not silent:
        return f"{lost.share or 0.0:.0%} of step time is lost, and no rule finds a cause that persists: read for longer"
    reasons: dict[str, list[str]] = {}
    for rule_id, outcome in silent.items():
        reasons.setdefault(outcome.why, []).append(rule_id)
    return "nothing found, but not everything could be looked at: " + "; ".join(f"{why} ({', '.join(ids)})" for why, ids in reasons.items())


def _ruled_out(
    case: Case, rules: Mapping[str, Rule], outcomes: Mapping[str, Outcome], blamed: set[Class], *, open_cause: bool = False
) -> tuple[RuledOut, ...]:
    """Each class outside the verdict whose every rule that had a source looked and found nothing, with its rules' reasons. With an
    `open_cause` time is lost and nobody knows to what: then a rule without a source leaves its class open, as a card that was not read
    may be the very cause."""
    out = []
    for klass in blind.BLAMED:
        said = [
            outcomes[rule_id] for rule_id, rule in rules.items() if rule.klass is klass and (open_cause or not blind.unread(case, rule))
        ]
        reasons = dict.fromkeys(o.why for o in said if isinstance(o, Healthy))  # rules of one class often share a reason
        if klass not in blamed and said and len(said) == sum(isinstance(o, Healthy) for o in said):
            out.append(RuledOut(klass, "; ".join(reasons)))
    return tuple(out)


def _missing(outcomes: Iterable[Outcome], kind: str) -> tuple[Missing, ...]:
    """Signals that would have let a rule answer or made a finding surer, once each."""
    names: dict[str, None] = {}
    for outcome in outcomes:
        if isinstance(outcome, NoData):
            names.update(dict.fromkeys(outcome.missing))
        elif isinstance(outcome, Finding):
            names.update(dict.fromkeys(outcome.weakened_by))
    return tuple(Missing(name, enabling.enable(name, kind), signals.CATALOGUE[name].adds) for name in names)


def _lockstep_loss(case: Case, found: list[_Found]) -> float | None:
    """The share of step time lost: host waits, uneven attention, uneven prefill and unexplained excess, or what the largest finding says
    if that is more, as some losses are seen by one rule alone. None: neither is known. A finding whose share is of something else than
    step time has no part in it."""
    found = _of_step_time(found)
    known = loss.measured(case)
    if known is None and not found:
        return None
    return min(1.0, max(known or 0.0, *(f.finding.share.mid for f in found), 0.0))


def _of_step_time(found: list[_Found]) -> list[_Found]:
    return [f for f in found if f.finding.share_of == STEP_TIME]


def _fitted(found: list[_Found], total: float | None) -> list[_Found]:
    """Findings whose shares add up to no more than the loss. Where they claim more, some claim the same time, such as two causes that
    each explain one rise over the past: each keeps its range, down to what the others leave, and an even part of the rest."""
    claimed = sum(f.finding.share.mid for f in _of_step_time(found))
    if total is None or claimed <= total or not claimed:
        return found
    out = [one for one in found if one.finding.share_of != STEP_TIME]
    for one in _of_step_time(found):
        share = one.finding.share
        own = max(0.0, total - (claimed - share.mid))
        fair = Share(share.mid * total / claimed, min(share.low, own), share.high)
        out.append(replace(one, finding=replace(one.finding, share=fair)))
    return out


def _lost_time(total: float | None, found: list[_Found]) -> LostTime:
    """What findings explain is booked to them, the rest to "unexplained", which every healthy group has too: chance deals unevenly."""
    if total is None:
        return LostTime(None)
    by_cause = {f.rule.id: round(f.finding.share.mid, 4) for f in _of_step_time(found)}
    return LostTime(round(total, 4), by_cause | {"unexplained": round(max(0.0, total - sum(by_cause.values())), 4)})
