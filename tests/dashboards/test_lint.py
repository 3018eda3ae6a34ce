"""House rules for dashboards: what makes a panel readable and its numbers right. After grafana/dashboard-linter, which needs Go."""

from __future__ import annotations

import json
import re

import pytest
from grafanalib import formatunits

from dashboards import build, look
from dashboards.rules import alertings

PAGES = sorted(build.pages())
DRAWN = {"heatmap", "row", "stat", "state-timeline", "table", "timeseries"}
"""Panel types that we use. All are in Grafana 9 to 13: none of those removed with Angular (graph, singlestat, table-old, ...)."""

UNITS = {v for k, v in vars(formatunits).items() if isinstance(v, str) and not k.startswith("_")}


@pytest.mark.parametrize("name", PAGES)
def test_panels_say_what_they_show_and_how_bad_looks(panels, name, pages):
    """A title of its own, a unit that Grafana knows, a description that names the bad shape, and an answer to missing data."""
    titles = [panel["title"] for panel in panels(pages[name])]
    assert len(titles) == len(set(titles))
    for panel in panels(pages[name]):
        assert panel["type"] in DRAWN
        assert len(panel["description"]) > 40, panel["title"]
        assert re.search(
            r"Bad:|No data:|evidence|Neither|Low:|what lasts|what people were told|not being run|None:", panel["description"]
        ), panel["title"]
        assert panel["fieldConfig"]["defaults"]["noValue"] == "no data"
        if panel["type"] in {"timeseries", "stat"}:
            assert panel["fieldConfig"]["defaults"]["unit"] in UNITS, panel["title"]
        if panel["type"] == "heatmap":
            assert panel["options"]["cellValues"]["unit"] in UNITS, panel["title"]


@pytest.mark.parametrize("name", PAGES)
def test_panels_lie_side_by_side(name, pages):
    """No overlap, nothing wider than the grid, ids that are unique: Grafana would move or merge them."""
    taken: set[tuple[int, int]] = set()
    for panel in pages[name]["panels"]:
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert at["x"] + at["w"] <= 24
        assert not cells & taken
        taken |= cells
    ids = [panel["id"] for panel in pages[name]["panels"]]
    assert len(ids) == len(set(ids))


@pytest.mark.parametrize("name", PAGES)
def test_every_variable_is_used_and_every_one_used_is_there(name, pages):
    """A variable that filters nothing misleads; one that is not declared is sent as text."""
    declared = {v["name"] for v in pages[name]["templating"]["list"]}
    text = json.dumps([pages[name]["panels"], pages[name]["annotations"], [v["query"] for v in pages[name]["templating"]["list"]]])
    used = {a or b for a, b in re.findall(r"\$(?:\{(\w+)(?::\w+)?\}|([a-z]\w*))", text)} | {"datasource"}
    assert used - {"__value", "__url_time_range"} == declared


@pytest.mark.parametrize("name", PAGES)
def test_every_query_names_the_data_source_variable(panels, name, pages):
    """A dashboard that names one data source works in one Grafana only."""
    for panel in panels(pages[name]):
        assert panel["targets"]
        assert {json.dumps(part["datasource"]) for part in (panel, *panel["targets"])} == {'{"type": "prometheus", "uid": "${datasource}"}'}


@pytest.mark.parametrize("name", PAGES)
def test_links_lead_to_dashboards_that_exist(name, pages):
    """And set only variables that those have."""
    by_uid = {page["uid"]: {v["name"] for v in page["templating"]["list"]} for page in pages.values()}
    for uid, query in re.findall(r"/d/([\w-]+)\?([^\"]*)", json.dumps(pages[name])):
        assert set(re.findall(r"var-(\w+)=", query)) <= by_uid[uid]


def test_alerts_lead_to_dashboards_that_exist(pages):
    """The path in an alert's annotation, too."""
    uids = {page["uid"] for page in pages.values()}
    assert {uid for rule in alertings() for uid in re.findall(r"^/d/([\w-]+)", rule.annotations["dashboard"])} <= uids
    assert all(rule.annotations["dashboard"].startswith("/d/") for rule in alertings())


def test_charts_draw_few_lines(panels, pages):
    """With 512 ranks a chart shows one rank, the four that stand out, or a sum; of engines the largest few. Heat maps show all ranks."""
    for page in pages.values():
        for panel in panels(page):
            for target in panel["targets"] if panel["type"] == "timeseries" else ():
                if "{{rank}}" in target["legendFormat"]:
                    assert ") and on (rank) topk(4, " in target["expr"], panel["title"]
                if "{{engine}}" in target["legendFormat"]:
                    assert ") and on (engine) topk(10, " in target["expr"], panel["title"]
                if "{{node}}" in target["legendFormat"]:
                    assert re.search(r"\) and on \(engine, node(, source)?\) topk\(10, ", target["expr"]), panel["title"]
                if target["expr"].startswith("rank:"):
                    assert 'rank="$rank"' in target["expr"], panel["title"]


def test_colours_are_those_that_everybody_tells_apart(panels, pages):
    """Fixed colours are Okabe and Ito's; each state's colour differs, and heat maps grow in lightness."""
    palette = {value for value in vars(look).values() if isinstance(value, str) and re.fullmatch(r"#[0-9a-f]{6}", value)}
    assert len({colour for _, colour in look.CLASSES.values()}) == len(look.CLASSES)
    for page in pages.values():
        assert set(re.findall(r"#[0-9a-fA-F]{6}", json.dumps(page))) <= palette
        assert {panel["options"]["color"]["scheme"] for panel in panels(page) if panel["type"] == "heatmap"} <= {"Viridis"}


def test_values_cover_the_variables(values, pages):
    """The tests fill in every variable that there is."""
    assert {v["name"] for page in pages.values() for v in page["templating"]["list"]} == {
        "datasource",
        "source",
        *(name[1:] for name in values if not name.startswith("$__")),
    }
