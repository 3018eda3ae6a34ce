"""The per-rank table: one line per rank, the culprit marked, nothing shown that was not observed."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from diagnose.model import RankRow

MOST_ROWS = 32  # above, only the culprits and the latest ranks are listed: a page of a terminal; the JSON report has all


@dataclass(frozen=True, slots=True)
class Column:
    """One quantity of the table: its head with the unit, how it is read from a row and how it is written."""

    head: str
    read: Callable[[RankRow], float | None]
    write: Callable[[float], str]
    expected: bool = True  # worth a word when no rank has it


def _whole(value: float) -> str:
    return f"{value:,.0f}"


def _tenth(value: float) -> str:
    return f"{value:,.0f}" if value == int(value) else f"{value:,.1f}"


def _ms(value: float) -> str:
    return f"{value * 1e3:,.2f}"


COLUMNS = (
    Column("step ms", lambda r: r.step_time, _ms, expected=False),
    Column("running", lambda r: r.running, _tenth),
    Column("waiting", lambda r: r.waiting, _tenth),
    Column("tokens/step", lambda r: r.tokens_per_step, _tenth),
    Column("pairs/step", lambda r: r.pairs_per_step, _whole),
    Column("wait ms/step", lambda r: r.wait_per_step, _ms),
    Column("late ms", lambda r: r.lateness, _ms),
    Column("CPU %", lambda r: r.scheduler_cpu, lambda v: f"{v * 100:,.0f}"),
    Column("snapshot age s", lambda r: r.snapshot_age, lambda v: f"{v:,.1f}"),
)


@dataclass(frozen=True, slots=True)
class Line:
    """One printed line of the table and whether it is a culprit's."""

    text: str
    culprit: bool = False


def table(rows: Sequence[RankRow]) -> list[Line]:
    """The header and a line per rank, columns aligned, then what was left out."""
    shown = most_telling(rows)
    columns = observed(rows)
    cells = [["rank", *(c.head for c in columns)]]
    cells += [[str(row.rank), *(cell(c, row) for c in columns)] for row in shown]
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
    if absent := unseen(rows):
        lines.append(Line(f"  not observed on any rank: {', '.join(absent)}"))
    return lines


def observed(rows: Sequence[RankRow]) -> list[Column]:
    """The columns that at least one rank has a value in."""
    return [c for c in COLUMNS if any(_seen(c.read(r)) for r in rows)]


def unseen(rows: Sequence[RankRow]) -> list[str]:
    """The heads of the columns that are left out because no rank has a value, and that one could expect."""
    columns = observed(rows)
    return [c.head for c in COLUMNS if c.expected and c not in columns]


def most_telling(rows: Sequence[RankRow]) -> list[RankRow]:
    """All rows, or of too many the culprits and the latest ranks, in order."""
    if len(rows) <= MOST_ROWS:
        return list(rows)
    first = sorted(rows, key=lambda r: (not r.culprit, -(r.lateness if _seen(r.lateness) and r.lateness else 0.0), r.rank))
    return sorted(first[:MOST_ROWS], key=lambda r: r.rank)


def cell(column: Column, row: RankRow) -> str:
    """A rank's value as written in the table; "-" where it was not observed."""
    value = column.read(row)
    return column.write(value) if value is not None and _seen(value) else "-"


def _seen(value: float | None) -> bool:
    return value is not None and math.isfinite(value)


def _mark(culprit: bool) -> str:
    return "  <- culprit" if culprit else ""
