"""The per-rank table: one line per rank, the culprit marked, nothing shown that was not observed."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from diagnose.model import RankRow

MOST_ROWS = 32  # above, only the culprits and the latest ranks are listed: a page of a terminal; the JSON report has all


@dataclass(frozen=True, slots=True)
class _Column:
    head: str
    read: Callable[[RankRow], float | None]
    write: Callable[[float], str]


def _whole(value: float) -> str:
    return f"{value:,.0f}"


def _tenth(value: float) -> str:
    return f"{value:,.0f}" if value == int(value) else f"{value:,.1f}"


def _ms(value: float) -> str:
    return f"{value * 1e3:,.2f}"


_COLUMNS = (
    _Column("running", lambda r: r.running, _tenth),
    _Column("waiting", lambda r: r.waiting, _tenth),
    _Column("tokens/step", lambda r: r.tokens_per_step, _tenth),
    _Column("pairs/step", lambda r: r.pairs_per_step, _whole),
    _Column("wait ms/step", lambda r: r.wait_per_step, _ms),
    _Column("late ms", lambda r: r.lateness, _ms),
    _Column("CPU %", lambda r: r.scheduler_cpu, lambda v: f"{v * 100:,.0f}"),
    _Column("snapshot age s", lambda r: r.snapshot_age, lambda v: f"{v:,.1f}"),
)


@dataclass(frozen=True, slots=True)
class Line:
    """One printed line of the table and whether it is a culprit's."""

    text: str
    culprit: bool = False


def table(rows: Sequence[RankRow]) -> list[Line]:
    """The header and a line per rank, columns aligned, then what was left out."""
    shown = _most_telling(rows)
    columns = [c for c in _COLUMNS if any(_seen(c.read(r)) for r in rows)]
    cells = [["rank", *(c.head for c in columns)]]
    cells += [[str(row.rank), *(_cell(c, row) for c in columns)] for row in shown]
    widths = [max(len(line[i]) for line in cells) for i in range(len(cells[0]))]
    lines = [
        Line(
            ("> " if culprit else "  ") + "  ".join(text.rjust(width) for text, width in zip(line, widths, strict=True)) + _mark(culprit),
            culprit,
        )
        for line, culprit in zip(cells, [False, *(row.culprit for row in shown)], strict=True)
    ]
    if len(shown) < len(rows):
        lines.append(Line(f"  {len(rows) - len(shown):,} more ranks not shown; --format json has them all"))
    absent = [c.head for c in _COLUMNS if c not in columns]
    if absent:
        lines.append(Line(f"  not observed on any rank: {', '.join(absent)}"))
    return lines


def _most_telling(rows: Sequence[RankRow]) -> list[RankRow]:
    if len(rows) <= MOST_ROWS:
        return list(rows)
    first = sorted(rows, key=lambda r: (not r.culprit, -(r.lateness if _seen(r.lateness) and r.lateness else 0.0), r.rank))
    return sorted(first[:MOST_ROWS], key=lambda r: r.rank)


def _cell(column: _Column, row: RankRow) -> str:
    value = column.read(row)
    return column.write(value) if value is not None and _seen(value) else "-"


def _seen(value: float | None) -> bool:
    return value is not None and math.isfinite(value)


def _mark(culprit: bool) -> str:
    return "  <- culprit" if culprit else ""
