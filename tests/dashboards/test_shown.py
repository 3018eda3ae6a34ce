"""What panels say: expressions that several of them share, evaluated by Prometheus' own test bench, and how what is missing looks."""

from __future__ import annotations

import json
import re
import subprocess

import pytest

from dashboards.largest import largest
from dashboards.look import CLASSES, GREY, UNREAD
from dashboards.verdicts import cause_colours, class_numbers
from diagnose.model import Class
from diagnose.rules import load


@pytest.fixture
def evaluated(server_binary, tmp_path):
    """evaluated(series, expression, expected): at 30 minutes the expression has exactly the expected samples, {labels as text: value}."""
    binary, _ = server_binary("promtool")

    def run(series: dict[str, str], expression: str, expected: dict[str, float]) -> None:
        asked = {
            "expr": expression.replace("$__range", "30m").replace("$__interval", "1m"),
            "eval_time": "30m",
            "exp_samples": [{"labels": labels, "value": value} for labels, value in expected.items()],
        }
        test = {"interval": "1m", "input_series": [{"series": n, "values": v} for n, v in series.items()], "promql_expr_test": [asked]}
        (tmp_path / "test.yaml").write_text(json.dumps({"evaluation_interval": "1m", "tests": [test]}))
        done = subprocess.run([binary, "test", "rules", "test.yaml"], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stdout + done.stderr

    return run


VERDICTS = {
    f'slowrank_verdict{{engine="{klass.value}",class="{klass.value}",cause="{cause}",severity="note"}}': "1x30"
    for klass, cause in ((klass, "" if klass in {Class.HEALTHY, Class.INSUFFICIENT} else "x") for klass in Class)
}


def test_each_class_is_its_number_in_a_timeline(evaluated):
    """Every class has one, and an engine that is read shows the one of its verdict."""
    up = {f'slowrank_engine_up{{engine="{klass.value}"}}': "1x30" for klass in Class}
    evaluated(VERDICTS | up, class_numbers(), {f'{{engine="{klass.value}"}}': CLASSES[klass][0] for klass in Class})


def test_an_engine_that_is_not_read_is_shown_as_that(evaluated):
    """Its last verdict stays on our page, and would stay green for ever. So does one that was never judged."""
    up = {f'slowrank_engine_up{{engine="{klass.value}"}}': "1x20 0x9" for klass in Class} | {'slowrank_engine_up{engine="new"}': "0x30"}
    engines = [*(klass.value for klass in Class), "new"]
    evaluated(VERDICTS | up, class_numbers(), {f'{{engine="{name}"}}': UNREAD[1] for name in engines})


def test_of_one_engine_no_other_is_shown(evaluated):
    """The matcher of a page reaches both parts of the expression."""
    up = {f'slowrank_engine_up{{engine="{klass.value}"}}': "1x30" for klass in Class} | {'slowrank_engine_up{engine="gone"}': "0x30"}
    evaluated(VERDICTS | up, class_numbers('engine="load"'), {'{engine="load"}': CLASSES[Class.LOAD][0]})


def test_the_largest_are_those_of_the_whole_time(evaluated):
    """Not those of the moment: a spike at the end draws no line, and what was large throughout does."""
    series = {'x{rank="0"}': "1x30", 'x{rank="1"}': "5x29 0", 'x{rank="2"}': "0x29 90", 'x{rank="3"}': "4x30"}
    evaluated(series, largest(2, "x", "rank"), {'x{rank="1"}': 0.0, 'x{rank="3"}': 4.0})


def test_the_bench_can_fail(evaluated):
    """A value that is not there is an error."""
    with pytest.raises(AssertionError, match="got"):
        evaluated({"x": "1x30"}, "x", {"x": 2.0})


def test_each_cause_has_the_colour_of_its_class():
    """In the chart of lost time: each rule's id matches one pattern, whose colour is the timeline's."""
    patterns = {o["matcher"]["options"].strip("/"): o["properties"][0]["value"]["fixedColor"] for o in cause_colours()}
    for rule in load().values():
        (colour,) = [colour for pattern, colour in patterns.items() if re.search(pattern, rule.id)]
        assert colour == CLASSES[rule.klass][1]
    assert not any(re.search(pattern, "unexplained") for pattern in patterns)


def test_a_number_that_is_not_there_is_grey(panels, pages):
    """Grafana gives it the colour of the lowest step, which is green here, if nobody says otherwise."""
    numbers = [panel for page in pages.values() for panel in panels(page) if panel["type"] == "stat"]
    assert numbers
    for panel in numbers:
        (mapping,) = panel["fieldConfig"]["defaults"]["mappings"]
        assert (mapping["type"], mapping["options"]["match"]) == ("special", "null+nan")
        assert mapping["options"]["result"]["color"] == GREY
        assert mapping["options"]["result"]["text"].replace("\N{NO-BREAK SPACE}", " ") == "no data"


def test_heat_maps_begin_at_zero_and_say_high_and_low(panels, pages):
    """Level ranks look level, and the words are true in Grafana's light theme too, where its scales run from light to dark."""
    for page in pages.values():
        for panel in panels(page):
            if panel["type"] == "heatmap":
                assert panel["options"]["color"]["min"] == 0, panel["title"]
        assert not re.search(r"\b(bright|dark)\b", json.dumps([p["description"] for p in panels(page)] + [page["description"]]))


def test_lines_that_a_page_names_have_colours_of_their_own(panels, pages):
    """Two lines of one panel never share one."""
    for page in pages.values():
        for panel in panels(page):
            fixed = [o for o in panel["fieldConfig"]["overrides"] if o["matcher"]["id"] == "byFrameRefID"]
            colours = [o["properties"][0]["value"]["fixedColor"] for o in fixed]
            assert len(colours) == len(set(colours)), panel["title"]
            if panel["type"] == "timeseries" and panel["options"]["legend"]["displayMode"] == "list":
                assert len(fixed) == len(panel["targets"]), panel["title"]
