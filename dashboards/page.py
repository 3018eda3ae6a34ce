"""A dashboard out of rows of panels: places, ids, variables, links and annotations, the same on every page."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from grafanalib import core
from grafanalib._gen import DashboardEncoder

from collector import exported
from dashboards.look import VERMILLION
from dashboards.modern import modernise
from dashboards.panels import DATASOURCE
from dashboards.quantities import STEP_TIME
from diagnose.incident_model import State

TAG = "slowrank"
WIDTH = 24
"""Columns of Grafana's grid."""


@dataclass(frozen=True, slots=True)
class Row:
    """Panels side by side, of equal width, under a heading (empty: none). `height` is in Grafana's units of 30 pixels."""

    heading: str
    height: int
    panels: Sequence[Any]


SOURCE = ("source", "Read from", f"label_values({STEP_TIME.record}, source)")
ENGINE = ("engine", "Engine", f'label_values({STEP_TIME.record}{{source="$source"}}, engine)')
RANK = ("rank", "Rank", f'label_values({STEP_TIME.record}{{source="$source",engine="$engine"}}, rank)')
JUDGED = ("engine", "Engine", f"label_values({exported.VERDICT}, engine)")
"""Variables: name, label, and the query for their values."""


def page(uid: str, title: str, about: str, variables: Sequence[tuple[str, str, str]], rows: Sequence[Row]) -> dict[str, Any]:
    """A dashboard as Grafana reads it. `about` says whom the page is for and what to look at first."""
    dashboard = core.Dashboard(
        uid=f"slowrank-{uid}",
        title=f"slowrank: {title}",
        description=about,
        tags=[TAG],
        editable=False,  # what is changed by hand is lost with the next version
        graphTooltip=1,  # one crosshair in all panels: which rank, when
        refresh="30s",
        time=core.Time("now-1h", "now"),
        timezone="browser",
        templating=core.Templating(list=[_datasource(), *(_variable(*v) for v in variables)]),
        annotations=core.Annotations(list=[_incidents(any(name == "engine" for name, _, _ in variables))]),
        links=[core.DashboardLink(title="slowrank", tags=[TAG], asDropdown=True, includeVars=True, keepTime=True)],
        panels=_placed(rows),
    )
    return modernise(json.loads(json.dumps(dashboard, cls=DashboardEncoder)))


def _placed(rows: Sequence[Row]) -> list[Any]:
    placed: list[Any] = []
    y = 0
    for row in rows:
        if row.heading:
            placed.append(core.RowPanel(title=row.heading, gridPos=core.GridPos(h=1, w=WIDTH, x=0, y=y)))
            y += 1
        width = WIDTH // len(row.panels)
        for k, panel in enumerate(row.panels):
            panel.gridPos = core.GridPos(h=row.height, w=width, x=k * width, y=y)
            placed.append(panel)
        y += row.height
    for k, panel in enumerate(placed):
        panel.id = k + 1
    return placed


def _datasource() -> core.Template:
    return core.Template(name="datasource", label="Prometheus", type="datasource", query="prometheus", default="default")


def _variable(name: str, label: str, query: str) -> core.Template:
    return core.Template(
        name=name, label=label, query=query, dataSource=DATASOURCE, refresh=2, sort=3
    )  # 2: with the time range; 3: as numbers


def _incidents(one: bool) -> dict[str, Any]:
    """Confirmed incidents as regions over every chart: of the page's engine, or of all, which cover too much and are to be switched on."""
    where = f'{"engine=" + chr(34) + "$engine" + chr(34) + "," if one else ""}state="{State.CONFIRMED.value}"'
    return {
        "name": "Incidents",
        "enable": one,
        "hide": False,
        "iconColor": VERMILLION,
        "datasource": DATASOURCE,
        "expr": f"max by (engine, cause, class) ({exported.INCIDENT}{{{where}}}) > 0",
        "titleFormat": "{{cause}}",
        "textFormat": "{{engine}} ({{class}})",
        "step": "30s",
    }
