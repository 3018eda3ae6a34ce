"""Real input through the whole path, from page bytes to verdict: captured pages and cases from the field. Never a guess."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from collector.intake import Intake
from collector.model import Page, Source
from diagnose.engine import diagnose
from diagnose.model import Class, EngineDiagnosis

TESTS = Path(__file__).parent.parent
CASES = TESTS / "field_cases"
CAPTURES = TESTS / "captures" / "sglang-0.5.23"
START = 1_795_996_800.0


def page(source: Source, body: bytes, at: float) -> Page:
    return Page("http://engine:30000", "http://engine:30000", source, START + at, 0.01, 200, "text/plain", body)


def verdict_on(*pages: Page) -> EngineDiagnosis:
    intake = Intake()
    for p in pages:
        intake.feed(p)
    return diagnose(intake.window("http://engine:30000"))


PAGES = (
    "17-smg805-mixed-label-schemas.txt",
    "18-aiperf1025-nan-gauge.txt",
    "19-sglang-priority-aggregate-label.txt",
    "21-sglang37852-kvmem-zero.txt",
    "23-smg813-colon-became-underscore.txt",
    "29-sglang7944-aborts-dominate.txt",
)


@pytest.mark.parametrize("case", PAGES)
def test_a_page_from_the_field_blames_nobody(case):
    """Pages without evidence of slowness, scraped ten times: insufficient evidence, no rank named, and what is missing is said."""
    body = (CASES / case).read_bytes()
    result = verdict_on(*(page(Source.SGLANG_METRICS, body, 2.0 * i) for i in range(10)))
    assert result.verdict.klass is Class.INSUFFICIENT
    assert result.verdict.ranks == ()
    assert result.verdict.cause is None


@pytest.mark.parametrize("state", ["zeroed", "empty"])
def test_a_rank_that_never_published_is_not_idle(state):
    """Zeroed slots and an empty list are not a balanced or an idle cluster: insufficient, and the problem is named."""
    case = json.loads((CASES / "25-v1loads-zeroed-and-empty.json").read_text())
    body = json.dumps(case[state]).encode()
    result = verdict_on(*(page(Source.SGLANG_LOADS, body, 1.0 * i) for i in range(12)))
    assert result.verdict.klass is Class.INSUFFICIENT
    assert result.verdict.ranks == ()
    assert result.problems


def test_the_old_load_list_is_refused_with_the_endpoint_to_use():
    """The bare list of /get_load is not /v1/loads: a problem names the endpoint to ask, and nothing is concluded."""
    body = (CASES / "24-sglang-get_load-list-shape.json").read_bytes()
    result = verdict_on(page(Source.SGLANG_LOADS, body, 0.0), page(Source.SGLANG_LOADS, body, 1.0))
    assert result.verdict.klass is Class.INSUFFICIENT
    assert any("/v1/loads" in str(p) for p in result.problems)


def test_two_scrapes_of_the_real_collectors_pages_are_too_few_to_blame():
    """One pair of pages supports rates, not persistence: rank 0 waits least there by construction, and still nobody is blamed."""
    first, second = ((CAPTURES / f"tp8-dp8-ep8-t{i}.prom").read_bytes() for i in (1, 2))
    result = verdict_on(page(Source.SGLANG_METRICS, first, 0.0), page(Source.SGLANG_METRICS, second, 13.5))
    assert len(result.ranks) == 8
    assert result.verdict.klass is Class.INSUFFICIENT
    assert result.verdict.ranks == ()


def test_equal_admissions_at_a_lower_throughput_blame_no_rank():
    """Equal counts per rank (the worst public case had a spread of 0) never become a request skew."""
    case = json.loads((CASES / "07-sglang35241-prefill-delayer-low-state.json").read_text())
    worst = next(run["r"] for run in case["new_seq_admissions_first_30s"] if run["run"] == "LOW" and run["range"] == 0)
    loads = [
        {
            "dp_rank": r,
            "num_running_reqs": n,
            "num_waiting_reqs": 0,
            "num_used_tokens": 16384 * n,
            "max_total_num_tokens": 10**6,
            "timestamp": 0,
        }
        for r, n in enumerate(worst)
    ]
    pages = []
    for i in range(12):
        for entry in loads:
            entry["timestamp"] = START + i
        pages.append(page(Source.SGLANG_LOADS, json.dumps({"timestamp": "2026-11-30T00:00:00+00:00", "loads": loads}).encode(), 1.0 * i))
    result = verdict_on(*pages)
    assert result.verdict.klass is Class.INSUFFICIENT
    assert result.verdict.ranks == ()
