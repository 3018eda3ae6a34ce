"""House rules for dashboards: what makes a panel readable and its numbers right. After grafana/dashboard-linter, which needs Go."""

from __future__ import annotations

import json
import re

import promql_parser
import pytest
from grafanalib import formatunits

from collector import exported
from dashboards import build, look
from dashboards.quantities import QUANTITIES
from dashboards.recording import BALANCEDNESS, DERIVED, recordings
from dashboards.rules import alertings

PAGES = sorted(build.pages())
DRAWN = {"heatmap", "row", "stat", "state-timeline", "table", "timeseries"}
"""Panel types that we use. All are in Grafana 9 to 13: none of those removed with Angular (graph, singlestat, table-old, ...)."""

UNITS = {v for k, v in vars(formatunits).items() if isinstance(v, str) and not k.startswith("_")}
FAMILIES = {name: f for f in (*exported.of_signals().values(), *exported.FAMILIES.values()) for name in f.series}
RECORDED = {*QUANTITIES, BALANCEDNESS, *(d.record for d in DERIVED)}


def selectors(expression: str):
    """(name, matchers as text, is inside a range) of each series that is asked for."""
    text = re.sub(r'"[^"]*"', '""', expression)
    for name, _, window in re.findall(r"\b((?:slowrank|rank:slowrank|engine:slowrank)[a-z0-9_:]*)(\{[^}]*\})?(\[[^\]]*\])?", text):
        yield name, bool(window)


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


def test_expressions_parse(asked):
    """Every panel and every rule, by the grammar of Prometheus 3, types included."""
    for query in asked:
        promql_parser.parse(query.with_values(source="slowrank"))
    for expression in (*(r.expr for r in recordings()), *(a.expr for a in alertings())):
        promql_parser.parse(expression)


def test_the_parser_checks_types():
    """The check above can fail: a rate of an instant vector is refused."""
    with pytest.raises(ValueError, match="expected type"):
        promql_parser.parse("rate(slowrank_scrapes_total)")


def test_counters_are_only_read_as_rates(asked):
    """A total says how long a process lives. The exceptions ask whether a counter has left zero, or compare it with its own past."""
    expressions = [q.expr for q in asked] + [r.expr for r in recordings()] + [a.expr for a in alertings()]
    bare = {name for e in expressions for name, ranged in selectors(e) if name.endswith("_total") and not ranged}
    assert bare == {exported.RULE_FAILURES, exported.BREAKAGES, exported.RELOADS}


def test_levels_are_never_read_as_rates(asked):
    """A rate of a gauge is noise that looks like a number."""
    expressions = [q.expr for q in asked] + [r.expr for r in recordings()] + [a.expr for a in alertings()]
    assert {n for e in expressions for n, ranged in selectors(e) if ranged and FAMILIES[n].kind is exported.Kind.GAUGE} == set()


def test_windows_follow_the_scrape_interval(asked):
    """Panels take rates over $__rate_interval; a counted increase may name the time that its title names."""
    for query in asked:
        assert set(re.findall(r"rate\([^\[]*\[([^\]]*)\]", query.expr)) <= {"$__rate_interval"}, query
        assert set(re.findall(r"increase\([^\[]*\[([^\]]*)\]", query.expr)) <= {"1h"}, query


def test_series_exist_under_the_labels_that_they_are_asked_by(asked):
    """Every series is one that the exporter's table or the recording rules define; matchers and groupings name labels that it has."""
    recorded = {"engine", "rank", "source"}
    for expression in [q.with_values(source="slowrank") for q in asked] + [a.expr for a in alertings()]:
        known = {name for name, _ in selectors(expression)} - {"slowrank"}
        assert known <= set(FAMILIES) | RECORDED, expression
        labels = set().union(*(FAMILIES[n].labels if n in FAMILIES else recorded for n in known))
        labels |= {"le"} if any(n.endswith("_bucket") for n in known) else set()
        asked_for = {
            label for group in re.findall(r"\b(?:by|on|group_left) \(([^)]*)\)", expression) for label in re.split(r",\s*", group) if label
        }
        asked_for |= {
            label
            for body in re.findall(r"\{([^}]*)\}", expression)
            for label in re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", re.sub(r'"[^"]*"', '""', body))
        }
        assert asked_for <= labels, expression


def test_charts_draw_few_lines(panels, pages):
    """With 512 ranks a chart shows one rank or what sums them up; of engines the largest few. Heat maps show all ranks."""
    for page in pages.values():
        for panel in panels(page):
            for target in panel["targets"] if panel["type"] == "timeseries" else ():
                assert "{{rank}}" not in target["legendFormat"], panel["title"]
                if "{{engine}}" in target["legendFormat"]:
                    assert target["expr"].startswith("topk(10, "), panel["title"]
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
