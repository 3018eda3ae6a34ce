"""docs/accuracy.md from the figures. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.accuracy.ablate import ABLATIONS
from benchmarks.accuracy.goals import Goal
from benchmarks.accuracy.headline import Headline, Reading, brief_of, headline
from benchmarks.accuracy.judge import Judged
from benchmarks.accuracy.observe import Said
from benchmarks.accuracy.tables import table

TITLES = {
    "G1": "Classes, culprits and causes",
    "G3": "Two faults at once",
    "G4": "Healthy load",
    "G7": "How small a slowdown is found",
    "G8": "Faults that were there from the start",
    "G12": "One signal less",
}


OURS = "<!-- what follows is written by hand -->"
"""Ends the generated part of the document; what stands behind it is kept."""


def renewed(text: str, before: str) -> str:
    """The generated text with the hand-written end of the document as it was."""
    _, mark, kept = before.partition(OURS)
    return f"{text}\n{mark}{kept}" if mark else text


def document(head: str, goals: Sequence[Goal], sections: Sequence[tuple[str, str]]) -> str:
    """Title, the goals in one table, then a section for each goal that has one, then the others."""
    parts = [f"# Accuracy\n\n{head}"]
    parts.append(
        "## Against the goals\n\n"
        + table(["goal", "figure", "must", "measured [95 %]"], ([g.id, g.what, g.must, g.measured] for g in goals))
    )
    parts += [f"## {TITLES.get(g.id, g.id)}\n\n{g.section}" for g in goals if g.section]
    parts += [f"## {title}\n\n{text}" for title, text in sections]
    return "\n\n".join(parts) + "\n"


def ablation_section(runs: Sequence[Judged]) -> str:
    """The headline again with less read, on the runs that were asked so."""
    some = [r for r in runs if r.observed.ablated]
    rows = [_row("everything", headline(some)), _row("ten seconds, half a minute of past", headline(some, brief_of))]
    rows += [_row(a.name, headline(some, _without(a.name))) for a in ABLATIONS]
    rows.append(_row("no healthy past", headline(some, lambda r: r.observed.no_past)))
    return (
        "The same runs, faults that metrics can tell; the last column counts verdicts that blame wrongly with a confidence above .8. "
        "Captures of virtual time hold the cards' pages, one every 5 s.\n\n"
        + table(["read", "class macro-F1", "culprit", "cause", "abstained", "wrong class", "wrong and sure"], rows)
    )


def _without(name: str) -> Reading:
    def read(run: Judged) -> Said | None:
        return run.observed.ablated.get(name)

    return read


def _row(name: str, h: Headline) -> list[object]:
    return [name, h.f1, h.top1, h.cause, h.abstained, h.wrong, h.confident_wrong]
