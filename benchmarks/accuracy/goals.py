"""The figures of the design's goals, each as a line of the summary and a section of the document. Pure."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.accuracy.alarms import Alarms, total
from benchmarks.accuracy.effect import MARGIN
from benchmarks.accuracy.headline import Reading, brief_of, headline, main_of
from benchmarks.accuracy.judge import NO_NEWS, Judged, blames, class_right
from benchmarks.accuracy.observe import Said
from benchmarks.accuracy.stats import Interval, bootstrap, poisson_rate, quantile, wilson
from benchmarks.accuracy.tables import counted, matrix, table
from diagnose.model import Class

SINGLE = Class.SINGLE_POINT.value
POWER = 0.8
"""Share of runs of one size found that counts as finding this size: the usual power of a test."""
EVENTS = ("stuck_rank", "stale_ledger", "kv_pressure")
"""Faults that are seen by ages and events, whatever they do to the step time: they say nothing about how small a slowdown is found."""
_LEGEND = (
    "Rows are what was injected, columns what was said. Card evidence only: what would show it was not read (DeepXTrace's matrix for a "
    "queue before a card), so it is a longer step for everybody. Hidden by overlap: a late host whose step time rose by less than 5 %. "
    f"No effect: a fault of load or layout under which no figure moved by {MARGIN:.0%} against the same engine and requests without it "
    "(steps and their length, tokens, first tokens, requests, retractions, waits), so that healthy is right. "
    "What a note says stands in these tables under its class; counts of blame leave notes out, as nobody is told of them."
)
SLOWDOWNS = ((0.0, 0.05), (0.05, 0.1), (0.1, 0.2), (0.2, 0.4), (0.4, math.inf))


@dataclass(frozen=True, slots=True)
class Goal:
    """One line of the summary, and what stands behind it."""

    id: str
    what: str
    must: str
    measured: str
    section: str = ""


def classes(runs: Sequence[Judged]) -> list[Goal]:
    """G1 to G3 on single faults: class, culprit, cause, with everything counted that could be counted against us."""
    ours, all_in, brief = headline(runs), headline(runs, all_in=True), headline(runs, brief_of)
    counts: Counter[tuple[str, str]] = Counter()
    by_fault: dict[str, Counter[str]] = {}
    notes = {
        "metrics": "",
        "card": " (card evidence only)",
        "hidden": " (hidden by overlap)",
        "none": " (no effect)",
        "group": " (whole group)",
    }
    for run in sorted(runs, key=lambda r: (r.truths[0].klass, r.truths[0].tells, r.truths[0].fault) if r.truths else ("", "", "")):
        truth = run.truths[0].klass + notes[run.truths[0].tells] if run.truths else "healthy"
        said = run.observed.main
        counts[truth, said.klass] += 1
        name = run.truths[0].fault + notes[run.truths[0].tells] if run.truths else "healthy"
        by_fault.setdefault(name, Counter())[f"{said.klass}: {said.cause}" if said.cause else said.klass] += 1
    idle = [r for r in runs if r.truths and r.truth.tells == "none"]
    section = "\n\n".join(
        (
            _LEGEND,
            matrix(counts, "injected"),
            table(["injected", "said"], ([name, counted(c)] for name, c in by_fault.items())),
            _by_traffic(runs, main_of),
            "The same of a live look: ten seconds with a page every two, and half a minute of past.",
            _by_traffic(runs, brief_of),
        )
    )
    return [
        Goal("G1", "class macro-F1, faults that metrics can tell and healthy runs", ".97", str(ours.f1), section),
        Goal("G1", "the same, all faults by their true class", ".97", str(all_in.f1)),
        Goal("G1", "another class blamed, healthy runs included", "", str(ours.wrong)),
        Goal("G1", "abstained", "", str(ours.abstained)),
        Goal("G1", "class macro-F1 of a live look: ten seconds, half a minute of past", "", str(brief.f1)),
        Goal("G1", "left out above: faults without effect, and what was said of them", "", _idle(idle)),
        Goal("G2", "culprit ranks exactly right, faults that metrics can tell", ".98", str(ours.top1)),
        Goal("G2", "the same, all faults", ".98", str(all_in.top1)),
        Goal("G3", "cause right, faults that metrics can tell", ".85", str(ours.cause)),
        Goal("G3", "the same, all faults", ".85", str(all_in.cause)),
    ]


def _by_traffic(runs: Sequence[Judged], read: Reading) -> str:
    found = {p: headline([r for r in runs if r.spec.preset == p], read) for p in dict.fromkeys(r.spec.preset for r in runs)}
    return table(
        ["traffic", "class macro-F1", "culprit", "cause", "abstained", "wrong class"],
        ([name, h.f1, h.top1, h.cause, h.abstained, h.wrong] for name, h in found.items()),
    )


def _idle(runs: Sequence[Judged]) -> str:
    of = counted(Counter(r.truth.fault for r in runs))
    return f"{len(runs)} ({of}); {counted(Counter(r.observed.main.klass for r in runs))}" if runs else "0"


def mixtures(runs: Sequence[Judged]) -> list[Goal]:
    """G3 on two faults at once."""

    def both(some: Sequence[Judged]) -> int:
        return sum({t.fault for t in r.truths} <= _causes(r.observed.main) for r in some)

    nameable = [r for r in runs if r.tellable]
    rows = [
        [" + ".join(t.fault for t in r.truths), r.spec.preset, ", ".join(sorted(_causes(r.observed.main))) or r.observed.main.klass]
        for r in runs
    ]
    foreign = sum(blames(r.observed.main) and r.observed.main.klass not in {t.klass for t in r.truths} for r in runs)
    return [
        Goal("G3", "mixtures: both named, of those that metrics can tell", ".70", str(wilson(both(nameable), len(nameable)))),
        Goal("G3", "mixtures: both named, all", ".70", str(wilson(both(runs), len(runs)))),
        Goal(
            "G3",
            "mixtures: a class of neither blamed",
            "",
            str(wilson(foreign, len(runs))),
            table(["two faults", "traffic", "causes named"], rows),
        ),
    ]


def alarms(parts: Sequence[Alarms]) -> list[Goal]:
    """G4: what healthy, uneven load was blamed for."""
    every = total(list(parts))
    by_preset = [total([p for p in parts if p.preset == name]) for name in dict.fromkeys(p.preset for p in parts)]
    rows = [
        [name, f"{a.rank_days:.2f}", counted(a.said), counted(a.blamed), counted(a.confirmed)]
        for name, a in zip(dict.fromkeys(p.preset for p in parts), by_preset, strict=True)
    ]
    days = every.rank_days

    def rate(events: Counter[str]) -> str:
        r = poisson_rate(events.total(), days)
        return f"{r.value:.3g} [{r.low:.2g}, {r.high:.2g}] ({events.total()} in {days:.1f} rank-days)"

    section = table(["traffic", "rank-days", "windows, by class", "blamed in single windows", "incidents confirmed"], rows)
    return [
        Goal("G4", "false pages a rank-day: confirmed incidents of page severity", ".01", rate(every.confirmed_pages), section),
        Goal("G4", "the same, single windows of page severity without confirmation", "", rate(every.pages)),
        Goal("G4", "confirmed incidents of any severity a rank-day", "", rate(every.confirmed)),
    ]


def misblame(runs: Sequence[Judged]) -> Goal:
    """G5: a good GPU lost."""
    of = [r for r in runs if r.truths and all(t.klass in {"load", "structural"} for t in r.truths)]
    bad = [r for r in of if r.observed.main.klass == SINGLE]
    return Goal("G5", "load or structure blamed on a single point", ".005", str(wilson(len(bad), len(of))))


def times(runs: Sequence[Judged]) -> list[Goal]:
    """G6: seconds from the onset until the right class is said twice in a row, or an incident of it confirmed; faults of >= 20 %."""
    some = [r for r in runs if r.observed.polls and r.truths and r.tellable and r.observed.rise >= 1.2]
    found = {
        "right class twice in a row, polls of 1 s": [_twice(r.observed.polls, r) for r in some],
        "incident confirmed, diagnosed every 10 s": [
            next((t for t, s in r.observed.confirmed if class_right(s, r.truth)), math.inf) for r in some
        ],
        "right class twice in a row, scrapes of 15 s": [_twice(r.observed.slow_polls, r) for r in some],
        "right class said once, scrapes of 15 s": [
            next((t for t, s in r.observed.slow_polls if class_right(s, r.truth)), math.inf) for r in some
        ],
    }
    must = {"polls": "8 s median", "scrapes": "60 s p95"}
    out = []
    for what, seconds in found.items():
        median, late = (bootstrap(seconds, lambda drawn, q=q: quantile(drawn, q)) for q in (0.5, 0.95))  # type: ignore[misc]
        never = sum(t == math.inf for t in seconds)
        text = f"median {_seconds(median)}, p95 {_seconds(late)}"
        text = f"{text} of {len(seconds)}, {never} never" if seconds else "- (no runs)"
        out.append(Goal("G6", what, next((m for key, m in must.items() if key in what and "twice" in what), ""), text))
    return out


def power(runs: Sequence[Judged]) -> Goal:
    """G7: how small a slowdown is still confirmed as an incident of the right class, by how long it lasts."""
    lasting = (60.0,)  # the service confirms by two windows of half a minute that do not overlap
    some = [r for r in runs if r.truths and r.truth.tells in {"metrics", *NO_NEWS} and r.truth.fault not in EVENTS]
    rows, smallest = [], math.inf
    for low, high in reversed(SLOWDOWNS):
        inside = [r for r in some if low <= r.observed.rise - 1.0 < high]
        found = [wilson(sum(_confirmed_by(r, t) for r in inside), len(inside)) for t in lasting]
        rows.append([f"{low:.0%} to {high:.0%}" if high < math.inf else f"{low:.0%} and more", *found])
        if low and found[-1].of and found[-1].value >= POWER and smallest == high:
            smallest = low
    said = f"{smallest:.0%}" if smallest < math.inf else "none: the largest are not found in 80 % of their runs"
    section = table(["rise of the step time", *(f"confirmed when it lasts {t:.0f} s" for t in lasting)], rows[::-1])
    return Goal("G7", "smallest slowdown confirmed in 80 % of its runs within 60 s", "10 %", said, section)


def from_start(runs: Sequence[Judged]) -> list[Goal]:
    """G8: faults without a healthy past."""
    told = [r for r in runs if r.truths and r.tellable]
    faulty = [r for r in runs if r.truths and r.truth.tells != "group"]
    by_fault: dict[str, Counter[str]] = {}
    for r in runs:
        said = r.observed.main
        by_fault.setdefault(r.truth.fault, Counter())[f"{said.klass}: {said.cause}" if said.cause else said.klass] += 1
    right, everything = (wilson(sum(class_right(r.observed.main, r.truth) for r in some), len(some)) for some in (told, faulty))
    section = table(["from the start", "said"], ([name, counted(c)] for name, c in by_fault.items()))
    return [
        Goal("G8", "recall of faults present from the start, that metrics can tell", ".9", str(right), section),
        Goal("G8", "the same, all faults", ".9", str(everything)),
    ]


def removed(runs: Sequence[Judged]) -> Goal:
    """G12: without any one signal the verdict is the same class or insufficient evidence."""
    total_, changed = 0, Counter[str]()
    for r in runs:
        for signal, said in r.observed.removed.items():
            total_ += 1
            if said.klass not in {r.observed.main.klass, Class.INSUFFICIENT.value}:
                changed[
                    f"{r.truths[0].fault if r.truths else 'healthy'} without {signal}: {r.observed.main.klass} becomes {said.klass}"
                ] += 1
    kept = wilson(total_ - changed.total(), total_)
    section = table(["changed", "times"], changed.most_common()) if changed else "No verdict turned into another class."
    return Goal("G12", "a signal removed: same class or insufficient evidence", "1", str(kept), section)


def listed(runs: Sequence[Judged]) -> str:
    """A few runs, each in a line."""
    rows = [
        [r.spec.seed, " + ".join(f"{t.fault} on {sorted(t.ranks)}" for t in r.truths) or "nothing", _words(r.observed.main)] for r in runs
    ]
    return table(["seed", "injected", "said"], rows)


def _words(said: Said) -> str:
    return f"{said.klass}: {said.cause} on {list(said.ranks)}, confidence {said.confidence:.0%}" if said.cause else said.klass


def _seconds(found: Interval) -> str:
    value, low, high = (f"{t:.0f} s" if t < math.inf else "never" for t in (found.value, found.low, found.high))
    return f"{value} [{low}, {high}]"


def _causes(said: Said) -> set[str]:
    return {cause for cause in (said.cause, *(cause for _, cause, _ in said.also)) if cause}


def _twice(polls: Sequence[tuple[float, Said]], run: Judged) -> float:
    rights = [class_right(s, run.truth) for _, s in polls]
    return next((polls[i][0] for i in range(1, len(polls)) if rights[i - 1] and rights[i]), math.inf)


def _confirmed_by(run: Judged, seconds: float) -> bool:
    return any(t <= seconds and class_right(s, run.truth) for t, s in run.observed.confirmed)
