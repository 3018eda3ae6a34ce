"""Markdown tables. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table whose cells are printed as they are; a bar inside a cell is escaped."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(str(cell).replace("|", "\\|") for cell in line) + " |" for line in lines)


def matrix(counts: Mapping[tuple[str, str], int], corner: str) -> str:
    """Rows are truths, columns what was said; a cell without a run is a dot."""
    rows = list(dict.fromkeys(row for row, _ in counts))
    columns = sorted({column for _, column in counts})
    return table([corner, *columns], ([row, *(counts.get((row, c), 0) or "." for c in columns)] for row in rows))


def counted(counts: Counter[str]) -> str:
    """What was counted, most first."""
    return ", ".join(f"{what} x{n}" for what, n in counts.most_common()) or "none"
