"""The report for a person at three in the morning: the verdict first, then what to do, then everything that backs it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from diagnose.model import Class, EngineDiagnosis, Evidence, Finding, Healthy, NoData, Severity, Verdict
from diagnose.report.plain import percent, prose, quantity, safe, utc, wrap
from diagnose.report.table import table

_TITLE = {
    Class.HEALTHY: "HEALTHY",
    Class.SINGLE_POINT: "SINGLE POINT",
    Class.LOAD: "LOAD",
    Class.STRUCTURAL: "STRUCTURAL",
    Class.OUTSIDE: "OUTSIDE THE RANKS",
    Class.INSUFFICIENT: "INSUFFICIENT EVIDENCE",
}
_GREEN, _GREY, _RED, _YELLOW, _BOLD = "32;1", "90", "31;1", "33;1", "1"
_SEVERITY_INK = {Severity.PAGE: _RED, Severity.TICKET: _YELLOW, Severity.NOTE: _BOLD}
NARROWEST = 40  # below it every word has a line of its own
_IDENTITY = 160  # characters of a foreign name (engine, model) that are shown


@dataclass(frozen=True, slots=True)
class _Sheet:
    """How to put a line on paper: with or without colour, how wide."""

    colour: bool
    width: int

    def ink(self, text: str, code: str) -> str:
        return f"\x1b[{code}m{text}\x1b[0m" if self.colour else text

    def wrap(self, text: str, indent: str = "  ", hang: str | None = None) -> list[str]:
        return wrap(text, max(self.width, NARROWEST), indent, hang)

    def section(self, title: str, lines: Iterable[str]) -> list[str]:
        body = list(lines)
        return ["", self.ink(title, _BOLD), *body] if body else []


def render(diagnosis: EngineDiagnosis, *, colour: bool, width: int = 100) -> str:
    """The whole report of one engine as text that reads as well in a ticket as on a terminal."""
    sheet, verdict = _Sheet(colour, width), diagnosis.verdict
    missing = sheet.section("Missing, and how to turn it on", _missing(sheet, verdict))
    problems = sheet.section("Problems while reading", (line for p in diagnosis.problems for line in _item(sheet, str(p))))
    blind = is_blind(verdict)
    lines = [
        *(sheet.ink(line, _ink(verdict)) for line in sheet.wrap(headline(verdict), "")),
        *sheet.wrap(prose(verdict.summary), ""),
        *sheet.wrap(caution(verdict), ""),
        "",
        *_facts(sheet, diagnosis),
        *sheet.section("What to do next", _next(sheet, verdict)),
        *((*problems, *missing) if blind else ()),
        *sheet.section("Ranks", _ranks(sheet, diagnosis)),
        *sheet.section("Evidence", _evidence(sheet, verdict.evidence)),
        *sheet.section("Also found", _also(sheet, verdict)),
        *sheet.section("Ruled out", (line for r in verdict.ruled_out for line in _item(sheet, f"{r.klass.value}: {r.why}"))),
        *(() if blind else missing),
        *sheet.section("Rules that could not answer", _unanswered(sheet, diagnosis)),
        *(() if blind else problems),
        *sheet.section("Notes", (line for note in diagnosis.notes for line in _item(sheet, note))),
    ]
    return "\n".join(lines) + "\n"


def headline(verdict: Verdict) -> str:
    """The verdict in one line: class, cause, ranks, cost, confidence."""
    if is_blind(verdict):
        return subject(verdict)
    sure = f"confidence {confidence(verdict.confidence)}"
    if verdict.klass is Class.HEALTHY:
        return f"{subject(verdict)}, {sure}"
    return f"{subject(verdict)}, {cost(verdict)}, {sure}"


def subject(verdict: Verdict) -> str:
    """What is wrong and where: class, cause, ranks."""
    title = _TITLE[verdict.klass]
    if verdict.klass is Class.HEALTHY:
        return f"{title}: no rank holds the others back"
    if is_blind(verdict):
        return f"{title}: no verdict"
    return f"{title}: {safe(verdict.cause or 'cause unnamed')}{_place(verdict)}"


def cost(verdict: Verdict) -> str:
    """What the cause costs."""
    return f"{verdict.share} of {verdict.share_of}" if verdict.share else "cost unknown"


def confidence(value: float) -> str:
    """A confidence in words and number."""
    word = "high" if value >= 0.9 else "moderate" if value >= 0.7 else "low"
    return f"{word} ({'over 99%' if value > 0.99 else f'{value:.0%}'})"  # no diagnosis is ever 100% sure


def blamed_for(verdict: Verdict) -> dict[int, str]:
    """What to write beside each culprit: that it is one, and of several causes which are its own."""
    causes: dict[int, list[str]] = {}
    for one in (verdict, *verdict.also):
        for rank in one.ranks:
            causes.setdefault(rank, []).append(one.cause or "cause unnamed")
    return {rank: f"culprit: {', '.join(names)}" if verdict.also else "culprit" for rank, names in causes.items()}


def ranks_in_words(ranks: tuple[int, ...]) -> str:
    """ "rank 0", "ranks 0 and 3", or the first eight of many."""
    if not ranks:
        return "no single rank"
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    if len(ranks) > 8:
        return f"ranks {', '.join(map(str, ranks[:8]))} and {len(ranks) - 8} more"
    return f"ranks {', '.join(map(str, ranks[:-1]))} and {ranks[-1]}"


def caution(verdict: Verdict) -> str:
    """What an insufficient verdict must not be mistaken for."""
    if verdict.klass is not Class.INSUFFICIENT:
        return ""
    if verdict.cause is None:
        return "This is not a clean bill of health: what could be read does not allow a verdict either way."
    return "Something is wrong; what could be read does not say whether a rank, the load or the layout is to blame."


def _place(verdict: Verdict) -> str:
    return "" if verdict.klass is Class.OUTSIDE and not verdict.ranks else f" on {ranks_in_words(verdict.ranks)}"


def is_finding(verdict: Verdict) -> bool:
    """Whether the verdict says that something is wrong."""
    return verdict.klass is not Class.HEALTHY and not is_blind(verdict)


def is_blind(verdict: Verdict) -> bool:
    """Whether there is no verdict for want of evidence."""
    return verdict.klass is Class.INSUFFICIENT and verdict.cause is None


def _ink(verdict: Verdict) -> str:
    if verdict.klass is Class.HEALTHY:
        return _GREEN
    return _GREY if is_blind(verdict) else _SEVERITY_INK[verdict.severity]


def facts(diagnosis: EngineDiagnosis) -> Iterator[tuple[str, str]]:
    """What was read and what it adds up to, as (name, value); a line without a name continues the one before."""
    engine, verdict, stated = diagnosis.engine, diagnosis.verdict, diagnosis.engine.facts
    seen = len(diagnosis.ranks)
    counted = f"{seen} of {stated.expected_ranks} ranks" if stated.expected_ranks and stated.expected_ranks != seen else f"{seen} ranks"
    kind = f"{engine.kind} {stated.version}" if stated.version else engine.kind
    named = [kind, stated.model, stated.role, counted, f"on {stated.accelerator}" if stated.accelerator else None]
    yield "engine", safe(engine.id, _IDENTITY)
    yield "", ", ".join(safe(text, _IDENTITY) for text in named if text)
    span = f"{utc(diagnosis.start)} to {utc(diagnosis.end)} ({diagnosis.end - diagnosis.start:.0f} s, {diagnosis.scrapes:,} pages read)"
    yield "window", span
    if verdict.since is not None:
        yield "since", f"{utc(verdict.since)}: before that, the window does not show it"
    yield "step time", f"{quantity(diagnosis.step_time, 's')}, clock: {safe(engine.clock)}"
    if verdict.share and is_finding(verdict):
        yield "cost", f"{cost(verdict)}; repairing the cause gives that back"
    yield "lost time", _lost(verdict)
    if is_finding(verdict) and not verdict.ranks and verdict.klass is not Class.OUTSIDE:
        yield "culprit", "no rank can be named from these signals"
    yield "rules", _asked(diagnosis)


def _facts(sheet: _Sheet, diagnosis: EngineDiagnosis) -> Iterator[str]:
    for name, value in facts(diagnosis):
        yield from sheet.wrap(value, f"  {name:<11}", " " * 13)


def _lost(verdict: Verdict) -> str:
    lost = verdict.lost_time
    if lost.share is None:
        return "the signals do not say"
    parts = [f"{safe(cause)} {percent(share)}" for cause, share in sorted(lost.by_cause.items(), key=lambda item: (-item[1], item[0]))]
    return f"{percent(lost.share)} of step time" + (f": {', '.join(parts)}" if parts else "")


def _asked(diagnosis: EngineDiagnosis) -> str:
    outcomes = [o.outcome for o in diagnosis.outcomes]
    fired, quiet, blind = (sum(isinstance(o, kind) for o in outcomes) for kind in (Finding, Healthy, NoData))
    return f"{len(outcomes)} asked: {fired} found something, {quiet} found nothing, {blind} could not answer"


def remedy(verdict: Verdict) -> str:
    """What to do next, in a sentence; empty when there is nothing to say."""
    if not verdict.remedy and verdict.klass is Class.HEALTHY:
        return "Nothing. If users still see slow tokens, look around the ranks: router, tokenizer, client, network."
    return prose(verdict.remedy)


def _next(sheet: _Sheet, verdict: Verdict) -> Iterator[str]:
    yield from sheet.wrap(remedy(verdict))
    if verdict.would_tell:
        yield from sheet.wrap(f"What would tell: {prose(verdict.would_tell)}")
    if verdict.runbook:
        yield f"  Runbook: {safe(verdict.runbook)}"


def _ranks(sheet: _Sheet, diagnosis: EngineDiagnosis) -> Iterator[str]:
    if diagnosis.ranks:
        for line in table(diagnosis.ranks):
            yield sheet.ink(line.text, _ink(diagnosis.verdict)) if line.culprit else line.text
    else:
        yield "  no rank was seen"


def _evidence(sheet: _Sheet, evidence: Iterable[Evidence]) -> Iterator[str]:
    for item in evidence:
        yield from _item(sheet, item.what)
        yield from sheet.wrap(compared(item), "    ")
        if item.promql:
            yield f"    PromQL: {pasteable(item.promql)}"


def compared(item: Evidence) -> str:
    """The number of one piece of evidence, with what it was held against."""
    parts = [
        f"{item.signal} of {'the group' if item.rank is None else f'rank {item.rank}'}: {quantity(item.observed, item.unit)}",
        *([f"expected {quantity(item.expected, item.unit)}"] if item.expected is not None else ()),
        *([f"limit {quantity(item.threshold, item.unit)}"] if item.threshold is not None else ()),
    ]
    return prose(", ".join(parts))


def pasteable(promql: str) -> str:
    """An expression on one line, uncut: it is there to be pasted."""
    return safe(" ".join(promql.split()), 2000)


def _also(sheet: _Sheet, verdict: Verdict) -> Iterator[str]:
    for other in verdict.also:
        yield from sheet.wrap(f"- {headline(other)}", "  ", "    ")
        for text in (other.summary, *(item.what for item in other.evidence), other.remedy and f"Next: {other.remedy}"):
            yield from sheet.wrap(prose(text), "    ")


def _missing(sheet: _Sheet, verdict: Verdict) -> Iterator[str]:
    for enable, brings in enabling(verdict):
        yield from _item(sheet, f"{enable}: brings {brings}")


def enabling(verdict: Verdict) -> Iterator[tuple[str, str]]:
    """What is missing by what turns it on, as (step, what it brings): one restart of the engine is one item, whatever it brings."""
    for enable in dict.fromkeys(item.enable for item in verdict.missing):
        yield enable, ", ".join(f"{item.signal} ({item.adds})" for item in verdict.missing if item.enable == enable)


def _unanswered(sheet: _Sheet, diagnosis: EngineDiagnosis) -> Iterator[str]:
    for rule, why in unanswered(diagnosis):
        yield from _item(sheet, f"{rule}: {why}")


def unanswered(diagnosis: EngineDiagnosis) -> Iterator[tuple[str, str]]:
    """The rules that could not look, as (rules, why): those with one reason together."""
    alike: dict[str, tuple[list[str], dict[str, None]]] = {}
    for entry in diagnosis.outcomes:
        if isinstance(entry.outcome, NoData):
            key = entry.outcome.why or ", ".join(entry.outcome.missing)
            rules, lacks = alike.setdefault(key, ([], {}))
            rules.append(entry.rule)
            lacks |= dict.fromkeys(entry.outcome.missing)
    for why, (rules, lacks) in alike.items():
        needs = f"needs {', '.join(lacks)}" if lacks else ""
        yield ", ".join(rules), "; ".join(text for text in (needs, why if why != ", ".join(lacks) else "") if text)


def _item(sheet: _Sheet, text: str) -> list[str]:
    return sheet.wrap(f"- {prose(text)}", "  ", "    ")
