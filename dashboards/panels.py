"""Panels: one function for each kind that we draw, over grafanalib. What grafanalib writes for Grafana before 8 is set right here or in
`dashboards.modern`. Each panel says what it shows, in which unit, and what a bad shape looks like.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from grafanalib import core

from dashboards.look import CLASSES, GREEN, GREY, ORANGE, SCHEME, UNREAD, VERMILLION

DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}

MAX_LINES = 10
"""Lines in a chart of ranks: more cannot be told apart by colour. Heat maps show all ranks, 8 or 512."""


@dataclass(frozen=True, slots=True)
class Query:
    """One expression, and how its series are called. `colour`: of its line, where it is one line; empty: the palette's next."""

    expr: str
    legend: str = ""
    colour: str = ""


@dataclass(frozen=True, slots=True)
class Link:
    """Where a click on a line or a cell leads."""

    title: str
    url: str


@dataclass(frozen=True, slots=True)
class Steps:
    """From which value on a number is bad; `amber` and `red` are in the panel's unit."""

    amber: float | None
    red: float | None


def lines(
    title: str,
    about: str,
    unit: str,
    *queries: Query,
    stacked: bool = False,
    steps: Steps | None = None,
    reach: float | None = None,
    link: Link | None = None,
    overrides: Sequence[dict[str, Any]] = (),
) -> core.TimeSeries:
    """Lines through time; stacked: areas upon each other. Lines that the page names have their colours and one line of legend, what is
    found by a query (the ten largest) a table of them, largest first. `reach`: how far the axis reaches at least, if not as REACHES says;
    `link`: where a click on a line leads."""
    named = all(query.colour for query in queries)
    defaults: dict[str, Any] = {"min": 0, "noValue": NOTHING}
    if reach is not None or unit in REACHES:
        defaults["custom"] = {"axisSoftMax": REACHES[unit] if reach is None else reach}
    if link:
        defaults["links"] = [{"title": link.title, "url": link.url}]
    return core.TimeSeries(
        title=title,
        description=about,
        dataSource=DATASOURCE,
        targets=targets(queries),
        unit=unit,
        maxDataPoints=None,
        colorMode="palette-classic",  # by name its colours are pale, and three lines looked like one
        lineWidth=1 if stacked else 2,
        fillOpacity=60 if stacked else 0,
        stacking={"mode": "normal", "group": "A"} if stacked else {"mode": "none", "group": "A"},
        showPoints="never",
        thresholds=thresholds(steps),
        thresholdsStyleMode="line" if steps else "off",
        tooltipMode="multi",
        tooltipSort="desc",
        extraJson={
            "fieldConfig": {"defaults": defaults, "overrides": [*(_coloured(k, q) for k, q in enumerate(queries) if q.colour), *overrides]},
            "options": {"legend": _LIST if named else _TABLE},
        },
    )


REACHES = {"percentunit": 0.1, "short": 1, "reqps": 1, "ops": 1}
"""How far an axis reaches at least, by unit: twice the loss that is worth a look, and one of what is counted. Else an axis from 0 to 0.4 %
makes mountains of noise."""

_LIST = {"calcs": ["lastNotNull"], "showLegend": True, "displayMode": "list"}
_TABLE = {"calcs": ["lastNotNull", "max"], "showLegend": True, "displayMode": "table", "sortBy": "Max", "sortDesc": True}


def by_name(pattern: str, colour: str) -> dict[str, Any]:
    """The colour of lines whose whole name matches a pattern."""
    return {"matcher": {"id": "byRegexp", "options": f"/^(?:{pattern})$/"}, "properties": [_fixed(colour)]}


def _fixed(colour: str) -> dict[str, Any]:
    return {"id": "color", "value": {"mode": "fixed", "fixedColor": colour}}


def _coloured(k: int, query: Query) -> dict[str, Any]:
    return {"matcher": {"id": "byFrameRefID", "options": letter(k)}, "properties": [_fixed(query.colour)]}


NOTHING = "no data"
"""What a panel without series says: neither zero nor healthy."""


_UNKNOWN = {
    "type": "special",
    "options": {"match": "null+nan", "result": {"text": NOTHING.replace(" ", "\N{NO-BREAK SPACE}"), "color": GREY, "index": 0}},
}
"""Else a number that is not there has the colour of the lowest step, which is green."""


def number(title: str, about: str, unit: str, query: Query, steps: Steps | None = None, coloured: bool = True) -> core.Stat:
    """One number of now."""
    return core.Stat(
        title=title,
        description=about,
        dataSource=DATASOURCE,
        targets=targets([query], instant=True),
        format=unit,
        maxDataPoints=None,
        thresholds=thresholds(steps),
        extraJson={
            "fieldConfig": {
                "defaults": {"unit": unit, "noValue": NOTHING, "color": {"mode": "thresholds"}, "mappings": [_UNKNOWN]},
                "overrides": [],
            },
            "options": {
                "colorMode": "value" if coloured and steps else "none",
                "graphMode": "none",
                "justifyMode": "auto",
                "orientation": "auto",
                "percentChangeColorMode": "standard",
                "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
                "showPercentChange": False,
                "textMode": "auto",
                "wideLayout": True,
            },
        },
    )


def heat(title: str, about: str, unit: str, query: Query, top: float | None = None) -> core.Heatmap:
    """Rank by time: a row for each series, which is named by its rank and so sorted as a number; the colour is the value.

    The scale begins at zero and ends at `top` (None: at the largest value): else the noise of level ranks looks like a difference."""
    ends = {"min": 0} if top is None else {"min": 0, "max": top}
    return core.Heatmap(
        title=title,
        description=about,
        dataSource=DATASOURCE,
        targets=targets([query]),
        maxDataPoints=200,  # columns: 512 ranks make 100,000 cells, which a browser still draws at once
        extraJson={
            "fieldConfig": {"defaults": {"custom": {"scaleDistribution": {"type": "linear"}}, "noValue": NOTHING}, "overrides": []},
            "options": {
                "calculate": False,
                "cellGap": 0,
                "cellValues": {"unit": unit},
                "color": {
                    "mode": "scheme",
                    "scheme": SCHEME,
                    "steps": 64,
                    "exponent": 0.5,
                    "fill": "dark-orange",
                    "reverse": False,
                    **ends,
                },
                "exemplars": {"color": "rgba(255,0,255,0.7)"},
                "filterValues": {"le": -1.0},  # Grafana's default hides zeros, and a zero is a reading
                "legend": {"show": True},
                "rowsFrame": {"layout": "auto", "value": title},
                "showValue": "never",
                "tooltip": {"mode": "single", "showColorScale": True, "yHistogram": False},
                "yAxis": {"axisPlacement": "left", "axisLabel": "rank", "reverse": True},
            },
        },
    )


def classes(title: str, about: str, query: Query) -> core.StateTimeline:
    """Verdicts through time, a row for each series; the value is a class's number (`of_classes`)."""
    states = [*((klass.value, *shown) for klass, shown in CLASSES.items()), UNREAD]
    options = {str(value): {"text": word, "color": colour, "index": value} for word, value, colour in states}
    return core.StateTimeline(
        title=title,
        description=about,
        dataSource=DATASOURCE,
        targets=targets([query]),
        maxDataPoints=None,
        mappings=[{"type": "value", "options": options}],
        thresholds=thresholds(None),
        rowHeight=0.8,
        extraJson={
            "fieldConfig": {"defaults": {"noValue": NOTHING}},
            "options": {"legend": {"calcs": [], "showLegend": True}, "tooltip": {"sort": "none"}, "perPage": 50},
        },
    )


def targets(queries: Sequence[Query], instant: bool = False, form: str = "time_series") -> list[core.Target]:
    """The queries of a panel, lettered in their order."""
    return [
        core.Target(expr=q.expr, legendFormat=q.legend or "__auto", refId=letter(k), instant=instant, format=form, datasource=DATASOURCE)
        for k, q in enumerate(queries)
    ]


def letter(k: int) -> str:
    """What Grafana calls a panel's k-th query."""
    return chr(ord("A") + k)


def thresholds(steps: Steps | None) -> list[dict[str, Any]]:
    """Colours from which value on; grey where no value is good or bad."""
    if steps is None:
        return [{"color": GREY, "value": None}]
    found: list[dict[str, Any]] = [{"color": GREEN, "value": None}]
    found += [{"color": ORANGE, "value": steps.amber}] if steps.amber is not None else []
    found += [{"color": VERMILLION, "value": steps.red}] if steps.red is not None else []
    return found
