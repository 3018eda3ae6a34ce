"""No test is left out of `make test`: every row of clusters that run beside others is one that tests/all.sh plays."""

from __future__ import annotations

import re
from pathlib import Path

TESTS = Path(__file__).parent
MARKED = re.compile(r"\bmark\.beside\((.*?)\)")


def test_every_row_is_played() -> None:
    """Rows named in tests against those of the script, and no row is given otherwise than by its number."""
    named = [found for path in TESTS.rglob("test_*.py") for found in MARKED.findall(path.read_text(encoding="utf-8"))]
    rows = {re.fullmatch(r"row=(\d+)", one) for one in named}
    assert None not in rows
    played = set(re.findall(r"beside\(row=(\d+)\)", (TESTS / "all.sh").read_text(encoding="utf-8")))
    assert {row[1] for row in rows if row} == played
