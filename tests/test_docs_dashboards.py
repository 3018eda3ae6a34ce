"""docs/dashboards.md is held to the code."""

from __future__ import annotations

import re
from pathlib import Path

from dashboards.alerting import health
from dashboards.quantities import QUANTITIES
from dashboards.recording import BALANCEDNESS, DERIVED
from dashboards.series import ENGINE_LABEL, RANK_LABEL, Source
from deploy.preview.__main__ import SHOTS

TEXT = (Path(__file__).parent.parent / "docs" / "dashboards.md").read_text()


def test_recorded_series_are_listed_with_the_pages_that_they_come_from():
    """All of them, and none else; a yes where the source has an expression."""
    rows = dict(re.findall(r"^\| `((?:rank|engine):[^`]+)` \| [^|]+ \| (.*) \|$", TEXT, re.MULTILINE))
    assert set(rows) == {*QUANTITIES, BALANCEDNESS, *(d.record for d in DERIVED)}
    for quantity in QUANTITIES.values():
        assert rows[quantity.record].split(" | ") == ["yes" if source in quantity.of else "-" for source in Source]


def test_alerts_on_slowrank_itself_have_a_heading_each():
    """Where their runbook_url leads."""
    assert set(re.findall(r"^### (\w+)$", TEXT, re.MULTILINE)) == {rule.name for rule in health()}
    assert {rule.annotations["runbook_url"] for rule in health("https://x.example")} == {
        f"https://x.example/dashboards.md#{rule.name}" for rule in health()
    }


def test_each_picture_is_shown_and_small():
    """Those that `python -m deploy.preview` draws, and none else; a page of documentation is not megabytes."""
    folder = Path(__file__).parent.parent / "docs" / "dashboards"
    shown = re.findall(r"!\[[^\]]+\]\(dashboards/([\w-]+)\.png\)", TEXT)
    assert sorted(shown) == sorted(SHOTS) == sorted(path.stem for path in folder.iterdir())
    sizes = [path.stat().st_size for path in folder.iterdir()]
    assert max(sizes) < 250_000
    assert sum(sizes) < 2_000_000


def test_labels_of_scrape_configurations_are_named():
    """By the names that the rules read."""
    assert ENGINE_LABEL in TEXT
    assert RANK_LABEL in TEXT
