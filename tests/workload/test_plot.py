"""The pictures: one per fault, well formed, with units, the span of the fault and nothing from elsewhere; and the document's tables."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from workload import faults
from workload.fault_table import filled
from workload.plot import draw, picture
from workload.scenario import parse
from workload.trace import Point, points

DOCS = Path(__file__).parent.parent.parent / "docs"
SVG = "{http://www.w3.org/2000/svg}"
STORY = "ranks = 2\nduration = 10\nabout = 'A < B.'\n[[fault]]\nname = 'slow_rank'\nrank = 1\nonset = 4\nduration = 2"


def lines(root: ET.Element, colour: str) -> list[str]:
    return [line.attrib["points"] for line in root.iter(f"{SVG}polyline") if line.attrib["stroke"] == colour]


def test_the_tables_of_the_document_are_those_of_the_registry():
    """`python -m workload.fault_table docs/workload.md` changes nothing."""
    text = (DOCS / "workload.md").read_text()
    assert filled(text) == text
    with pytest.raises(ValueError, match="is missing"):
        filled(text.replace("<!-- end of faults -->", ""))


@pytest.mark.parametrize("fault", faults.load())
def test_every_fault_has_its_picture(fault):
    """It parses, names the fault, and asks for nothing from any other file or address."""
    text = (DOCS / "workload" / f"{fault}.svg").read_text()
    root = ET.fromstring(text)
    assert root.find(f"{SVG}title").text == fault  # type: ignore[union-attr]
    assert "href" not in text
    assert "<script" not in text
    assert {"ms", "thousand KV tokens", "requests"} <= {tail.strip(", ") for t in root.iter(f"{SVG}tspan") if (tail := t.tail)}


def test_points_are_what_grew_between_two_scrapes():
    """Steps of both kinds count; waits and pairs are per step; a second without a step has no step time."""

    def scrape(active: float, idle: float, recv: float, sync: float, pairs: float) -> dict[str, list[float]]:
        return {
            'dp_attention_steps_total{rank_state="active"}': [active, 0.0],
            'dp_attention_steps_total{rank_state="idle"}': [idle, active + idle],
            'scheduler_stage_seconds_total{category="recv_requests",forward_overlap="none"}': [recv, 0.0],
            "dp_attention_sync_wait_seconds_sum": [sync, 0.5],
            'dp_attention_pairs_total{kind="scheduled"}': [pairs, 0.0],
            "requests": [3.0, 0.0],
        }

    found = points([(0.0, scrape(0, 0, 0, 0, 0)), (1.0, scrape(15, 5, 0.2, 0.4, 4000)), (2.0, scrape(15, 5, 0.2, 0.4, 4000))])
    first = found[0]
    assert first.step == pytest.approx(0.05)
    assert first.waits == pytest.approx((0.03, 0.0))
    assert (first.at, first.pairs, first.requests) == (1.0, (200.0, 0.0), (3.0, 0.0))
    assert found[1] == Point(2.0, None, None, None, (3.0, 0.0))


def test_a_picture_is_drawn_to_scale():
    """The fault's span is shaded from onset to end; a curve breaks where there was no step; the ill rank has its own colour and dash."""
    scenario = parse(STORY, "story.toml", "story", Path())
    found = [Point(float(at), 0.1, (0.1, 0.0), (1e3, 2e3), (1.0, 5.0)) for at in (1, 2, 3)]
    found += [Point(4.0, None, None, None, (1.0, 5.0)), Point(5.0, 0.2, (0.2, 0.0), (1e3, 2e3), (1.0, 5.0))]
    root = ET.fromstring(picture(scenario, found, "a test"))
    assert "A < B." in "".join(root.itertext())
    shades = [r for r in root.iter(f"{SVG}rect") if r.attrib["fill"] == "#fbe9c6" and "fill-opacity" in r.attrib]
    assert len(shades) == 4  # one a panel
    # 740 units are ten seconds, and begin at 66
    assert {(s.attrib["x"], s.attrib["width"]) for s in shades} == {("362.0", "148.0")}
    step = lines(root, "#1b1b1b")
    assert [len(run.split()) for run in step] == [3, 1]
    assert step[0].split()[0].startswith("140.0,")
    # of two steps, that of twice the time stands twice as high above the axis
    base = float(shades[0].attrib["y"]) + float(shades[0].attrib["height"])
    low, high = (base - float(run.split()[0].split(",")[1]) for run in step)
    assert high == pytest.approx(2 * low, abs=0.2)
    assert len(lines(root, "#d55e00")) == 5  # the ill rank: waits and pairs in two runs each, requests in one


def test_a_scenario_is_drawn_from_virtual_time_and_what_it_cannot_play_is_said(tmp_path):
    """The file has the scenario's name; mixed prefill is refused there."""
    path = draw(parse(STORY, "story.toml", "story", Path()), tmp_path)
    assert path == tmp_path / "story.svg"
    assert lines(ET.parse(path).getroot(), "#d55e00")
    with pytest.raises(ValueError, match="virtual time does not play mixed prefill"):
        draw(parse("[engine]\nmixed = true", "mixed.toml", "mixed", Path()), tmp_path)
