"""grafanalib's output as Grafana 13 has it. grafanalib 0.7.1 writes schema version 12 with fields of panels that are gone; this keeps what
the current schema knows and drops the rest, so that no migration has to guess. Pure: plain JSON values in and out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

SCHEMA_VERSION = 42
"""The newest that Grafana 13's own migrator ends with."""

_DASHBOARD = (
    "annotations", "description", "editable", "graphTooltip", "links", "panels", "refresh", "schemaVersion", "tags", "templating", "time",
    "timepicker", "timezone", "title", "uid",
)  # fmt: skip
_PANEL = (
    "datasource", "description", "fieldConfig", "gridPos", "id", "links", "maxDataPoints", "options", "targets", "title", "transformations",
    "type",
)  # fmt: skip
_ROW = ("collapsed", "gridPos", "id", "panels", "title", "type")
_TARGET = ("datasource", "expr", "format", "instant", "legendFormat", "refId")
_VARIABLE = (
    "allValue", "current", "datasource", "hide", "includeAll", "label", "multi", "name", "options", "query", "refresh", "regex", "sort",
    "type",
)  # fmt: skip


def modernise(dashboard: Mapping[str, Any]) -> dict[str, Any]:
    """A dashboard as grafanalib writes it, after `to_json_data` all the way down, as the current schema has it."""
    kept = _only(dashboard, _DASHBOARD)
    kept["schemaVersion"] = SCHEMA_VERSION
    kept["panels"] = [_panel(panel) for panel in dashboard["panels"]]
    kept["templating"] = {"list": [_variable(v) for v in dashboard["templating"]["list"]]}
    kept["timepicker"] = {}
    return kept


def _panel(panel: Mapping[str, Any]) -> dict[str, Any]:
    if panel["type"] == "row":
        return _only(panel, _ROW) | {"panels": [_panel(inner) for inner in panel.get("panels", [])]}
    kept = _only(panel, _PANEL)
    kept["targets"] = [_only(target, _TARGET) for target in panel.get("targets", [])]
    kept["fieldConfig"] = _without_nulls(panel.get("fieldConfig", {}))
    defaults = kept["fieldConfig"].setdefault("defaults", {})
    if "thresholds" in defaults:  # where null is a value: the lowest step has no lower end
        defaults["thresholds"] = panel["fieldConfig"]["defaults"]["thresholds"]
        if not defaults["thresholds"]["steps"]:
            del defaults["thresholds"]
    for dead in ("columns", "fontSize", "fieldOptions"):
        kept.get("options", {}).pop(dead, None)
    defaults.get("custom", {}).get("scaleDistribution", {}).pop("log", None)  # of a linear scale
    kept["fieldConfig"].setdefault("overrides", [])
    return kept


def _variable(variable: Mapping[str, Any]) -> dict[str, Any]:
    kept = _only(variable, _VARIABLE)
    kept["current"] = _only(variable["current"], ("selected", "text", "value"))
    if variable["type"] == "datasource":
        kept.pop("datasource", None)
    return kept


def _only(values: Mapping[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    return {name: _without_nulls(values[name]) for name in names if values.get(name) is not None}


def _without_nulls(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _without_nulls(item) for key, item in value.items() if item is not None}
    return [_without_nulls(item) for item in value] if isinstance(value, list) else value
