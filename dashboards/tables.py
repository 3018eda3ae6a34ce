"""Tables: one row for each label set, a column for each query, and how columns are shown. Over grafanalib, as `dashboards.panels`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from grafanalib import core

from dashboards.look import CLASSES, GREEN, VERMILLION
from dashboards.panels import DATASOURCE, NOTHING, Link, Query, letter, targets, thresholds


def table(
    title: str,
    about: str,
    columns: Mapping[str, Query],
    hidden: Sequence[str],
    overrides: Sequence[dict[str, Any]],
    by: str,
    first: Sequence[str] = (),
) -> core.Table:
    """One row for each label set, one column for each query; `columns` by heading. `hidden`: labels that are not shown. `by`: the column
    that sorts it, largest first. `first`: labels in the order in which they are shown before all else."""
    renamed = {f"Value #{letter(k)}": heading for k, heading in enumerate(columns)}
    return core.Table(
        title=title,
        description=about,
        dataSource=DATASOURCE,
        targets=targets(list(columns.values()), instant=True, form="table"),
        maxDataPoints=None,
        thresholds=thresholds(None),
        transformations=[
            {"id": "merge", "options": {}},
            {
                "id": "organize",
                "options": {
                    "excludeByName": dict.fromkeys(["Time", "__name__", *hidden], True),
                    "indexByName": {label: k for k, label in enumerate(first)},
                    "renameByName": renamed,
                },
            },
        ],
        extraJson={
            "fieldConfig": {"defaults": {"noValue": NOTHING, "custom": {"filterable": True}}, "overrides": list(overrides)},
            "options": {"showHeader": True, "cellHeight": "sm", "frameIndex": 0, "sortBy": [{"displayName": by, "desc": True}]},
        },
    )


def column(
    heading: str, unit: str = "", decimals: int | None = None, link: Link | None = None, nothing: str = "", width: int | None = None
) -> dict[str, Any]:
    """How a table shows one column. `nothing`: what an empty cell says, where that is an answer and no data is missing. `width`: in pixels,
    of what is longer than its share of the table."""
    properties: list[dict[str, Any]] = []
    if width is not None:
        properties.append({"id": "custom.width", "value": width})
    if nothing:
        properties.append({"id": "noValue", "value": nothing})
    if unit:
        properties.append({"id": "unit", "value": unit})
    if decimals is not None:
        properties.append({"id": "decimals", "value": decimals})
    if link:
        properties.append({"id": "links", "value": [{"title": link.title, "url": link.url}]})
    return {"matcher": {"id": "byName", "options": heading}, "properties": properties}


def class_column() -> dict[str, Any]:
    """The column of classes, each word in its colour."""
    return _worded("class", {klass.value: {"color": colour, "index": number} for klass, (number, colour) in CLASSES.items()})


def yes_or_no(heading: str) -> dict[str, Any]:
    """A column of ones and zeros, of which a zero is bad."""
    return _worded(heading, {"1": {"text": "yes", "color": GREEN, "index": 0}, "0": {"text": "no", "color": VERMILLION, "index": 1}})


def _worded(heading: str, words: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    shown = [
        {"id": "custom.cellOptions", "value": {"type": "color-text"}},
        {"id": "mappings", "value": [{"type": "value", "options": words}]},
    ]
    return {"matcher": {"id": "byName", "options": heading}, "properties": shown}
