"""The report for a ticket: GitHub's Markdown, in which no name, label or URL of the engine can be a link, a table or HTML.

Foreign text that a renderer might link or act on by itself (URLs, e-mail addresses, @mentions, #123, flags) stands in code spans, as no
renderer looks into them; all other text has its special characters escaped.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from diagnose.model import EngineDiagnosis, Evidence, Verdict
from diagnose.report.plain import prose, safe
from diagnose.report.table import cell, most_telling, observed, unseen
from diagnose.report.text import blamed_for, caution, compared, enabling, facts, headline, is_blind, pasteable, remedy, unanswered

_SPECIAL = re.compile(r"[\\`*_\[\]<>#|~&$]")
"""What CommonMark and GitHub's extensions obey in the middle of a line; $ begins mathematics."""

_BLOCK = re.compile(r"([-+=]|\d+(?=[.)](?:\s|$)))")
"""What begins a list, a rule or a heading, but only at the start of a line."""

_CODE = re.compile(r"(?i)://|www\.|@|#\d|_|^\(?--\w|[^\W\d]\.[^\W\d]")
"""Words that a renderer may link by itself, and identifiers and flags, which are read more easily as code."""

_EDGES = re.compile(r"^([(\"']*)(.*?)([)\"'.,;:!?]*)$", re.DOTALL)
"""A word's own punctuation, which stays outside of its code span."""


def render(diagnosis: EngineDiagnosis) -> str:
    """The whole report of one engine as Markdown."""
    verdict = diagnosis.verdict
    missing = _section(
        "Missing, and how to turn it on", (f"- {inline(step)}: brings {inline(brings)}" for step, brings in enabling(verdict))
    )
    problems = _section("Problems while reading", (f"- {inline(str(problem))}" for problem in diagnosis.problems))
    blind = is_blind(verdict)
    lines = [
        f"## {inline(headline(verdict))}",
        "",
        inline(verdict.summary),
        *(("", f"**{inline(caution(verdict))}**") if caution(verdict) else ()),
        *_section("What to do next", _next(verdict)),
        *((*problems, *missing) if blind else ()),
        *_section("What was read", _facts(diagnosis)),
        *_section("Ranks", _ranks(diagnosis)),
        *_section("Evidence", _evidence(verdict.evidence)),
        *_section("Also found", _also(verdict)),
        *_section("Ruled out", (f"- **{r.klass.value}**: {inline(r.why)}" for r in verdict.ruled_out)),
        *(() if blind else missing),
        *_section("Rules that could not answer", (f"- {inline(rule)}: {inline(why)}" for rule, why in unanswered(diagnosis))),
        *(() if blind else problems),
        *_section("Notes", (f"- {inline(note)}" for note in diagnosis.notes)),
    ]
    return "\n".join(lines) + "\n"


def inline(text: str) -> str:
    """One line of text that reads as it was written and can be nothing but text."""
    words = [_word(word) for word in prose(text).split(" ")]
    return _BLOCK.sub(_escape_block, " ".join(words), count=1) if words and _BLOCK.match(words[0]) else " ".join(words)


def code(text: str) -> str:
    """A code span of any text: its fence is longer than every run of backquotes inside."""
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    fence = "`" * (longest + 1)
    pad = " " if text[:1] in {"`", " "} or text[-1:] in {"`", " "} else ""
    return f"{fence}{pad}{text}{pad}{fence}" if text else ""


def _word(word: str) -> str:
    edges = _EDGES.match(word)
    if edges is None or not edges[2] or not _CODE.search(word):
        return _SPECIAL.sub(r"\\\g<0>", word)
    return f"{edges[1]}{code(edges[2])}{edges[3]}"


def _escape_block(start: re.Match[str]) -> str:
    return f"{start[1]}\\" if start[1].isdigit() else f"\\{start[1]}"


def _section(title: str, lines: Iterable[str]) -> list[str]:
    body = list(lines)
    return ["", f"### {title}", "", *body] if body else []


def _next(verdict: Verdict) -> Iterator[str]:
    if remedy(verdict):
        yield f"- {inline(remedy(verdict))}"
    if verdict.would_tell:
        yield f"- What would tell: {inline(verdict.would_tell)}"
    if verdict.runbook:
        yield f"- Runbook: {code(safe(verdict.runbook))}"


def _facts(diagnosis: EngineDiagnosis) -> Iterator[str]:
    for name, value in facts(diagnosis):
        yield f"- {f'**{name}**: ' if name else ''}{inline(value)}"


def _ranks(diagnosis: EngineDiagnosis) -> Iterator[str]:
    rows = diagnosis.ranks
    if not rows:
        yield "No rank was seen."
        return
    columns, shown = observed(rows), most_telling(rows)
    marks = blamed_for(diagnosis.verdict)
    yield f"| rank | {''.join(f'{c.head} | ' for c in columns)}|"
    yield f"|---:|{'---:|' * len(columns)}---|"
    for row in shown:
        mark = marks.get(row.rank, "")
        bold = "**" if mark else ""
        cells = [str(row.rank), *(cell(c, row) for c in columns)]
        yield f"| {' | '.join(f'{bold}{text}{bold}' for text in cells)} | {f'**{inline(mark)}**' if mark else ''} |"
    if len(shown) < len(rows):
        yield from ("", f"{len(rows) - len(shown):,} more ranks not shown; {code('--format json')} has them all.")
    absent = unseen(rows)
    if absent:
        yield from ("", f"Not observed on any rank: {', '.join(absent)}.")


def _evidence(evidence: Iterable[Evidence], indent: str = "") -> Iterator[str]:
    for item in evidence:
        yield f"{indent}- {inline(item.what)}"
        yield f"{indent}  - {inline(compared(item))}"
        if item.promql:
            yield f"{indent}  - PromQL: {code(pasteable(item.promql))}"


def _also(verdict: Verdict) -> Iterator[str]:
    for other in verdict.also:
        yield f"- **{inline(headline(other))}**"
        yield f"  - {inline(other.summary)}"
        yield from _evidence(other.evidence, "  ")
        if other.remedy:
            yield f"  - Next: {inline(other.remedy)}"
