"""Odd pages from the field: expectations are those at the head of each file."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from collector.errors import SourceError
from collector.exposition import Parser
from tests.collector.exposition_pages import CASES, NEEDED, case


def test_request_skew_pair() -> None:
    """27/5/0/0 after 8/8/8/8, and engines whose queue was not on the page are absent rather than 0."""
    parser = Parser(["vllm:num_requests_running", "vllm:num_requests_waiting"])
    before = parser.parse(case("03-vllm48808-dp4-request-skew-t0.txt"))
    after = parser.parse(case("03-vllm48808-dp4-request-skew-t1.txt"))
    assert [s.value for s in before.samples] == [8.0] * 4 + [0.0] * 4
    assert {s.labels["engine"]: s.value for s in after.samples if s.name.endswith("running")} == {"0": 27.0, "1": 5.0, "2": 0.0, "3": 0.0}
    assert [s.labels["engine"] for s in after.samples if s.name.endswith("waiting")] == ["0"]


def test_samples_without_type_lines() -> None:
    """A page without one TYPE line: nothing runs, six wait, the cache is empty."""
    result = Parser(["vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:kv_cache_usage_perc"]).parse(
        case("12-vllm-metal479-livelock.txt")
    )
    assert {s.name: s.value for s in result.samples} == {
        "vllm:num_requests_running": 0.0,
        "vllm:num_requests_waiting": 6.0,
        "vllm:kv_cache_usage_perc": 0.0,
    }
    assert {s.labels["model_name"] for s in result.samples} == {"mlx-community/Qwen3.6-27B-5bit"}


def test_mixed_label_schemas() -> None:
    """Series with and without `dp_rank`, or with an empty one, are kept apart."""
    samples = Parser().parse(case("17-smg805-mixed-label-schemas.txt")).samples
    assert [s.labels.get("dp_rank") for s in samples] == [None, "0", "1", ""]
    assert [s.labels["worker_addr"] for s in samples][:2] == ["http://worker-a:30000", "http://worker-b:30000"]


def test_nan_gauge() -> None:
    """NaN is a NaN sample, and every other series of the page is still there."""
    result = Parser().parse(case("18-aiperf1025-nan-gauge.txt"))
    assert math.isnan(result.samples[0].value)
    assert [s.value for s in result.samples[1:]] == [0.62, 3.0]
    assert result.problems == ()


def test_priority_labels() -> None:
    """The aggregate has priority "", and the bucket of the smallest 64-bit integer is a label like any other."""
    samples = Parser(["sglang:num_running_reqs"]).parse(case("19-sglang-priority-aggregate-label.txt")).samples
    assert {s.labels["priority"]: s.value for s in samples} == {"": 14.0, "-9223372036854775808": 0.0, "-1": 0.0, "0": 14.0}


def test_ranks_in_any_order() -> None:
    """Eight tp ranks in the page's order, none with a dp rank; the model name is a path."""
    samples = Parser(["sglang:kv_cache_memory_usage_gb"]).parse(case("21-sglang37852-kvmem-zero.txt")).samples
    assert [s.labels["tp_rank"] for s in samples] == list("60352174")
    assert {(s.value, s.labels["model_name"], s.labels.get("dp_rank")) for s in samples} == {(0.0, "/models/DeepSeek-V4-Flash", None)}


def test_gateway_page() -> None:
    """A gateway's page (underscores, blank lines, integers) answers to SGLang's names."""
    families = ["sglang:cuda_graph_passes_total", "sglang:realtime_tokens_total", "sglang:cache_hit_rate"]
    result = Parser(families).parse(case("23-smg813-colon-became-underscore.txt"))
    assert [(s.name, s.value) for s in result.samples] == [
        ("sglang_cuda_graph_passes_total", 311.0),
        ("sglang_cache_hit_rate", 0.0),
        ("sglang_realtime_tokens_total", 55.0),
    ]
    assert {s.labels["worker_addr"] for s in result.samples} == {"grpc://127.0.0.1:8001"}
    assert result.problems == ()


def test_log_lines_among_samples() -> None:
    """Six lines of a printed table are reported by their numbers; both samples are kept."""
    result = Parser().parse(case("26-kekzl1741-moe-expert-imbalance.txt"))
    assert [s.value for s in result.samples] == [7.190123, 32.0]
    assert [int(problem.split()[1]) for problem in result.problems] == [4, 5, 6, 7, 8, 9]
    assert "per-launch expert imbalance" in result.problems[0]


def test_aborted_requests_page() -> None:
    """157 of 217 requests were aborted and none runs."""
    samples = Parser(["sglang:num_requests_total", "sglang:num_aborted_requests_total", "sglang:num_running_reqs"]).parse(
        case("29-sglang7944-aborts-dominate.txt")
    )
    assert [s.value for s in samples.samples] == [217.0, 157.0, 0.0]


@pytest.mark.parametrize("path", sorted(CASES.glob("*.log")), ids=lambda path: path.stem)
def test_log_file_instead_of_a_page(path: Path) -> None:
    """A log has no samples that a diagnosis would ask for, and what is wrong with it fits on a screen."""
    assert Parser(NEEDED).parse(path.read_bytes()).samples == []
    assert 1 <= len(Parser().parse(path.read_bytes()).problems) <= 9


@pytest.mark.parametrize("path", sorted(CASES.glob("*.json")), ids=lambda path: path.stem)
def test_json_file_instead_of_a_page(path: Path) -> None:
    """JSON, a list or an object, is refused as such."""
    with pytest.raises(SourceError, match="is JSON, not a metrics page"):
        Parser().parse(path.read_bytes())
