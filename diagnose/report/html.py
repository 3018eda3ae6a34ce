"""The report as one HTML file that works offline: no script, no network, nothing that a hostile label could start. Pure.

Foreign text passes `safe` or `prose`, then jinja2's autoescape; the page's own policy then forbids all but its one style sheet, by hash.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from functools import cache
from importlib import resources
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from collector.model import Window
from diagnose.model import Class, EngineDiagnosis, Evidence, Verdict
from diagnose.report import charts, panels, runbook, table, text
from diagnose.report.heatmap import HeatMap, heat_map
from diagnose.report.plain import percent, prose, quantity, safe
from diagnose.rules import load

LABELS, MEANS = 90, 100
"""Widths left and right of a plot: row labels and row means."""

ROW_HEIGHTS = ((8, 22), (16, 18))
"""Up to so many rows, so high each; more rows are FLAT high, which still holds a line of 10 px text."""
FLAT = 13


def render(diagnosis: EngineDiagnosis, window: Window) -> str:
    """The report of one engine; `window` is the one that was diagnosed."""
    return render_all([(diagnosis, window)])


def render_all(found: Sequence[tuple[EngineDiagnosis, Window]]) -> str:
    """The reports of several engines in one file, in the order given."""
    css = style()
    page = environment().get_template("page.html.j2")
    return page.render(css=css, policy=policy(css), engines=[article(k, d, w) for k, (d, w) in enumerate(found)])


@cache
def environment() -> Environment:
    """Where the templates are, with the filters that they use. Shared: whoever adds to it takes an overlay."""
    made = Environment(
        loader=PackageLoader(__package__, "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    made.filters["prose"], made.filters["safely"] = prose, safe  # jinja2's own "safe" means the opposite
    return made


@cache
def style() -> str:
    """The style sheet."""
    return (resources.files(__package__) / "templates/report.css").read_text(encoding="utf-8")


def policy(css: str) -> str:
    """A browser fetches and runs nothing; the one style sheet is known by its hash, so that an injected one is refused."""
    digest = base64.b64encode(hashlib.sha256(css.encode()).digest()).decode()
    return f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"


def article(number: int, diagnosis: EngineDiagnosis, window: Window) -> dict[str, Any]:
    """What `article.html.j2` shows of one engine; `number` tells its anchors from those of others on the page."""
    verdict = diagnosis.verdict
    return {
        "number": number,
        "id": safe(diagnosis.engine.id, 160),
        "verdict": _verdict(verdict),
        "mood": mood(verdict),
        "caution": text.caution(verdict),
        "blind": text.is_blind(verdict),
        "tiles": _tiles(diagnosis),
        "facts": list(text.facts(diagnosis)),
        "also": [_verdict(other) for other in verdict.also],
        "bar": charts.bar(verdict.lost_time, charts.WIDTH),
        "lost": None if verdict.lost_time.share is None else percent(verdict.lost_time.share),
        "table": _table(diagnosis),
        "maps": [_drawn(m) for m in _maps(diagnosis, window)],
        "steps": charts.line(panels.step_time(window), "s"),
        "times": charts.times(window.edges),
        "ruled_out": [(r.klass.value, r.why) for r in verdict.ruled_out],
        "missing": list(text.enabling(verdict)),
        "unanswered": list(text.unanswered(diagnosis)),
        "problems": [str(problem) for problem in diagnosis.problems],
        "notes": diagnosis.notes,
        "runbooks": _runbooks(verdict),
        "plot": {"left": LABELS, "width": charts.WIDTH, "right": MEANS, "height": charts.HEIGHT},
    }


def mood(verdict: Verdict) -> str:
    """The colour of the verdict: green only when healthy, grey when nothing can be said, else as urgent as the rule says."""
    if verdict.klass is Class.HEALTHY:
        return "healthy"
    return "blind" if text.is_blind(verdict) else verdict.severity.value


def _verdict(verdict: Verdict) -> dict[str, Any]:
    return {
        "subject": text.subject(verdict),
        "headline": text.headline(verdict),
        "summary": verdict.summary,
        "remedy": text.remedy(verdict),
        "would_tell": verdict.would_tell,
        "runbook": verdict.runbook,
        "cost": text.cost(verdict),
        "evidence": [_evidence(item) for item in verdict.evidence],
    }


def _evidence(item: Evidence) -> dict[str, str]:
    return {"what": item.what, "compared": text.compared(item), "promql": text.pasteable(item.promql)}


def _tiles(diagnosis: EngineDiagnosis) -> list[tuple[str, str, str]]:
    """The few numbers to see first: (name, value, what it means)."""
    verdict, lost = diagnosis.verdict, diagnosis.verdict.lost_time.share
    tiles = []
    if text.is_finding(verdict):
        tiles.append(("culprit", text.ranks_in_words(verdict.ranks), "marked below" if verdict.ranks else "these signals name none"))
        tiles.append(("cost", str(verdict.share) if verdict.share else "unknown", f"of {verdict.share_of}; a repair gives it back"))
    if not text.is_blind(verdict):
        tiles.append(("confidence", text.confidence(verdict.confidence), "in this verdict"))
    tiles.append(("step time", quantity(diagnosis.step_time, "s"), "of the whole group"))
    if not text.is_finding(verdict):
        tiles.append(("lost time", "unknown" if lost is None else percent(lost), "of step time, all causes"))
    return tiles


def _table(diagnosis: EngineDiagnosis) -> dict[str, Any]:
    columns, shown = table.observed(diagnosis.ranks), table.most_telling(diagnosis.ranks)
    marks = text.blamed_for(diagnosis.verdict)
    return {
        "heads": [c.head for c in columns],
        "rows": [(row.rank, marks.get(row.rank, ""), [table.cell(c, row) for c in columns]) for row in shown],
        "hidden": len(diagnosis.ranks) - len(shown),
        "absent": table.unseen(diagnosis.ranks),
    }


def _maps(diagnosis: EngineDiagnosis, window: Window) -> list[HeatMap]:
    culprits = frozenset(text.blamed_for(diagnosis.verdict))
    return [heat_map(panel, window.ranks, culprits) for panel in panels.panels(window, diagnosis.step_time)]


def _drawn(drawn: HeatMap) -> dict[str, Any]:
    height = next((high for most, high in ROW_HEIGHTS if len(drawn.rows) <= most), FLAT)
    return {"map": drawn, "row": height, "height": height * len(drawn.rows), "column": charts.WIDTH / max(drawn.columns, 1)}


def _runbooks(verdict: Verdict) -> list[tuple[str, list[runbook.Block]]]:
    """The runbook of the cause and of each further cause that has one."""
    rules = load()
    causes = dict.fromkeys(v.cause for v in (verdict, *verdict.also) if v.cause is not None)
    return [(cause, runbook.blocks(rules[cause].runbook)) for cause in causes if cause in rules]
