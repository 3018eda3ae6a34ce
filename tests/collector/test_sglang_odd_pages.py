"""Whose a series of SGLang is, and pages that are odd, hostile, or from the field."""

from __future__ import annotations

import pytest

from collector import signals
from collector.engines import sglang
from collector.errors import SourceError
from collector.model import Page, Source
from tests.collector.sglang_pages import case, read, said


def test_nan_is_no_reading_and_takes_only_its_own_signal() -> None:
    """Also within a sum: a partial sum would look like a reset later. (Field case 18: a NaN threw a whole scrape away.)"""
    text = (
        'sglang:forward_execution_seconds_total{category="decode",dp_rank="0",tp_rank="0"} NaN\n'
        'sglang:forward_execution_seconds_total{category="idle",dp_rank="0",tp_rank="0"} 3\n'
        'sglang:num_retracted_requests_total{dp_rank="0",tp_rank="0"} 2\n'
    )
    reading = read(text)
    assert dict(reading.values) == {signals.RETRACTED: {0: 2.0}}
    assert "not a sample" not in said(read(case("18-aiperf1025-nan-gauge.txt")))


def test_pipeline_stages_are_not_added() -> None:
    """Each stage records its own copy; the lowest on the page speaks."""
    line = 'sglang:dp_attention_steps_total{{dp_rank="0",pp_rank="{pp}",rank_state="active",tp_rank="{tp}"}} {n}\n'
    both = read(line.format(pp=0, tp=0, n=70) + line.format(pp=1, tp=0, n=70))
    assert dict(both.values[signals.STEPS_ACTIVE]) == {0: 70.0}
    later = read(line.format(pp=1, tp=0, n=70))
    assert dict(later.values[signals.STEPS_ACTIVE]) == {0: 70.0}
    assert both.speakers[0] < later.speakers[0]


def test_pid_is_no_identity() -> None:
    """After a restart the dead process' series stays beside the new one's: they are one counter."""
    text = "".join(f'sglang:num_retracted_requests_total{{dp_rank="0",pid="{pid}",tp_rank="0"}} {n}\n' for pid, n in ((10, 4), (99, 1)))
    assert dict(read(text).values[signals.RETRACTED]) == {0: 5.0}


def test_a_rank_reported_twice_with_different_values_is_not_read() -> None:
    """A router that joins the pages of two engines: neither value is that rank's; equal repeats are harmless."""
    line = 'sglang:num_retracted_requests_total{{dp_rank="0",tp_rank="0",worker_addr="{w}"}} {n}\n'
    reading = read(line.format(w="a", n=4) + line.format(w="b", n=9))
    assert signals.RETRACTED not in reading.values
    assert "more than once" in said(reading)
    assert dict(read(line.format(w="a", n=4) * 2).values[signals.RETRACTED]) == {0: 4.0}


@pytest.mark.parametrize("label", ["-1", "x", "1.5", "4096", "99999999999999999999", "٣", " 1"])
def test_a_dp_rank_that_is_no_rank_is_skipped(label: str) -> None:
    """Labels are never trusted: only small non-negative integers are ranks."""
    text = f'sglang:num_retracted_requests_total{{dp_rank="{label}"}} 1\nsglang:num_retracted_requests_total{{dp_rank="2"}} 3\n'
    reading = read(text)
    assert dict(reading.values[signals.RETRACTED]) == {2: 3.0}
    assert "for a rank" in said(reading)


def test_problems_of_a_hostile_page_are_few() -> None:
    """Ten thousand bad labels are told in a handful of lines."""
    text = "".join(f'sglang:num_retracted_requests_total{{dp_rank="bad{k}"}} 1\n' for k in range(10_000))
    assert 1 < len(read(text).problems) <= 20


def test_case_17_a_series_without_dp_rank_beside_others_is_not_rank_0() -> None:
    """Prefill without DP and decode with DP attention on one joined page, dp_rank missing or empty."""
    reading = read(case("17-smg805-mixed-label-schemas.txt").replace("num_running_reqs", "num_retracted_requests_total"))
    assert dict(reading.values[signals.RETRACTED]) == {0: 4.0, 1: 4.0}
    assert reading.facts.role == "decode"
    assert "without dp_rank" in said(reading)


def test_case_19_the_empty_priority_is_the_total() -> None:
    """14, not 28; and where only parts are there, nothing and a problem, because a sum of parts may miss some."""
    text = case("19-sglang-priority-aggregate-label.txt").replace("num_running_reqs", "num_retracted_requests_total")
    assert dict(read(text).values[signals.RETRACTED]) == {0: 14.0}
    parts = "\n".join(line for line in text.splitlines() if 'priority=""' not in line) + "\n"
    reading = read(parts)
    assert signals.RETRACTED not in reading.values
    assert "per priority only" in said(reading)


def test_case_21_eight_tp_ranks_without_dp_rank_are_one_rank() -> None:
    """TP 8 of one engine; the model name is a path; the gauge that is always 0 is not read at all."""
    text = case("21-sglang37852-kvmem-zero.txt")
    assert dict(read(text).values) == {}
    reading = read(text.replace("kv_cache_memory_usage_gb", "num_retracted_requests_total").replace('tp_rank="6"} 0.0', 'tp_rank="6"} 7.0'))
    assert dict(reading.values[signals.RETRACTED]) == {0: 0.0}
    assert reading.facts.model == "/models/DeepSeek-V4-Flash"


def test_case_23_an_underscore_for_the_colon() -> None:
    """A gateway's spelling, integers without `.0`, no dp_rank: one rank."""
    reading = read(case("23-smg813-colon-became-underscore.txt"))
    assert dict(reading.values[signals.GRAPH_STEPS]) == {0: 311.0}


@pytest.mark.parametrize("name", ["29-sglang7944-aborts-dominate.txt", "03-vllm48808-dp4-request-skew-t0.txt"])
def test_case_29_a_page_without_rank_counters_says_so(name: str) -> None:
    """Only front-end totals, or another engine's page: nothing is read, and the problem says what to scrape."""
    reading = read(case(name))
    assert dict(reading.values) == {}
    assert "none of SGLang's per-rank counters" in said(reading)


@pytest.mark.parametrize("body", ["<html>sign in</html>", '{"detail":"Not Found"}', b"\x1f\x8b\x08\x00"])
def test_a_body_that_is_no_metrics_page_is_refused_by_url(body: str | bytes) -> None:
    """HTML, JSON, gzip: SourceError that names the URL."""
    with pytest.raises(SourceError, match="http://h:30000/metrics"):
        read(body)


def test_a_failed_page_is_refused_with_its_own_words() -> None:
    """What the scraper said is what the reader repeats; a bare status is named."""
    failed = Page("e", "http://h:1", Source.SGLANG_METRICS, 1.0, 0.1, 0, "", b"", "http://h:1/metrics: nothing listens there")
    with pytest.raises(SourceError, match="nothing listens there"):
        sglang.read(failed)
    with pytest.raises(SourceError, match="http://h:1/metrics: HTTP 404"):
        sglang.read(Page("e", "http://h:1", Source.SGLANG_METRICS, 1.0, 0.1, 404, "", b"x"))
