"""The dashboards are what Grafana 13 reads, by JSON schemas made of its own types (tests/data/grafana-schema-13.2.3/ORIGIN.md)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import pytest

from dashboards import build

FOLDER = Path(__file__).parent.parent / "data" / "grafana-schema-13.2.3"
OPTIONS = {
    "heatmap": "HeatmapOptions",
    "stat": "StatOptions",
    "state-timeline": "StateTimelineOptions",
    "table": "TableOptions",
    "timeseries": "TimeseriesOptions",
}
CUSTOM = {
    "heatmap": "HeatmapFieldConfig",
    "state-timeline": "StateTimelineFieldConfig",
    "table": "TableFieldConfig",
    "timeseries": "TimeseriesFieldConfig",
}
"""What draws a field; a single number has nothing of that kind."""

OF_PROMETHEUS = {"expr", "step", "titleFormat", "textFormat"}
"""Fields of an annotation that belong to the Prometheus data source, not to the dashboard's own schema."""


def _relaxed(schema: Any) -> Any:
    """Without required fields: what is left out has Grafana's default."""
    if isinstance(schema, dict):
        return {k: _relaxed(v) for k, v in schema.items() if k != "required" or not isinstance(v, list)}
    return [_relaxed(v) for v in schema] if isinstance(schema, list) else schema


@pytest.fixture(scope="module")
def errors():
    """errors(schema, value) -> what is wrong with it."""
    validators = {p.stem: jsonschema.Draft7Validator(_relaxed(json.loads(p.read_text()))) for p in FOLDER.glob("*.json")}
    return lambda name, value: [f"{list(e.absolute_path)}: {e.message[:300]}" for e in validators[name].iter_errors(value)]


@pytest.mark.parametrize("name", sorted(build.pages()))
def test_a_dashboard_is_what_the_current_schema_says(panels, name, pages, errors):
    """No unknown, removed or wrongly typed field in a dashboard, its panels, their options and their drawing."""
    page = dict(pages[name])
    page["annotations"] = {"list": [{k: v for k, v in a.items() if k not in OF_PROMETHEUS} for a in page["annotations"]["list"]]}
    found = errors("GDashboard", page)
    for panel in panels(page):
        found += errors("GPanel", panel) + errors(OPTIONS[panel["type"]], panel["options"])
        drawn = panel["fieldConfig"]["defaults"].get("custom", {})
        if panel["type"] in CUSTOM:
            found += errors(CUSTOM[panel["type"]], drawn)
        else:
            assert panel["type"] == "stat"
            assert drawn == {}
    assert found == []


def test_no_panel_is_left_out_of_the_check(panels, pages):
    """A panel inside a closed row, or of a type without a schema, would not be looked at."""
    assert not any(panel.get("panels") for page in pages.values() for panel in page["panels"])
    assert {panel["type"] for page in pages.values() for panel in panels(page)} == set(OPTIONS)
    assert set(OPTIONS) - set(CUSTOM) == {"stat"}


def test_the_schema_sees_what_grafanalib_writes_by_itself(errors):
    """The check can fail: a threshold of grafanalib's own, whose lowest step is the text "null", is refused."""
    steps = [{"color": "green", "index": 0, "line": True, "op": "gt", "value": "null", "yaxis": "left"}]
    panel = {"type": "stat", "fieldConfig": {"defaults": {"thresholds": {"mode": "absolute", "steps": steps}}, "overrides": []}}
    assert any("'null' is not of type" in error for error in errors("GPanel", panel))
