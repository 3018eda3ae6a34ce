"""The workload's metrics are those of SGLang 0.5.23: held to what SGLang's own classes declare and to a page they printed."""

from __future__ import annotations

import json
import math
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from workload.face import specs
from workload.face.metrics import LoggedStats, SchedulerMetrics

CAPTURES = Path(__file__).parents[1] / "captures" / "sglang-0.5.23"
DRIVER = Path(__file__).with_name("drive_face.py")

Series = tuple[str, frozenset[tuple[str, str]]]
Drive = Callable[[str], dict[str, Any]]


@pytest.fixture(scope="module")
def drive(tmp_path_factory: pytest.TempPathFactory) -> Drive:
    """Runs a scenario of drive_face.py in its own processes, once."""
    done: dict[str, dict[str, Any]] = {}

    def run(scenario: str) -> dict[str, Any]:
        if scenario not in done:
            directory = tmp_path_factory.mktemp(scenario)
            command = [sys.executable, "-W", "error", str(DRIVER), scenario, str(directory)]
            ran = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
            assert (ran.returncode, ran.stderr) == (0, "")
            done[scenario] = json.loads(ran.stdout)
        return done[scenario]

    return run


def samples(page: str) -> dict[Series, float]:
    """Every sample of a page by name and labels; `pid` stays a label, without its value."""
    found: dict[Series, float] = {}
    for family in text_string_to_metric_families(page):
        for sample in family.samples:
            labels = {name: "" if name == "pid" else value for name, value in sample.labels.items()}
            key = (sample.name, frozenset(labels.items()))
            assert key not in found
            found[key] = sample.value
    return found


def types(page: str) -> set[str]:
    return set(re.findall(r"^# TYPE (.*)$", page, re.MULTILINE))


def value(found: Mapping[Series, float], name: str, **labels: str) -> float | None:
    """The one sample with these labels among its labels; None when there is none."""
    hits = [x for (sample, own), x in found.items() if sample == f"sglang:{name}" and own >= frozenset(labels.items())]
    assert len(hits) <= 1
    return hits[0] if hits else None


# --- the table against SGLang's declarations


def declared_by_us() -> Iterator[tuple[specs.Family, tuple[str, ...]]]:
    for family in (*specs.SCHEDULER, specs.BALANCEDNESS):
        yield family, specs.SCHEDULER_LABELS
    for family in (*specs.TOKENIZER, specs.GET_LOADS):
        yield family, specs.TOKENIZER_LABELS
    yield specs.dispatched(8), ()


@pytest.mark.parametrize(("family", "base"), [pytest.param(*pair, id=pair[0].name) for pair in declared_by_us()])
def test_a_family_is_declared_as_sglang_declares_it(family: specs.Family, base: tuple[str, ...]) -> None:
    """Name, type, label names in order, bucket bounds and multiprocess mode, from SGLang's own classes."""
    declared = {spec["name"]: spec for spec in json.loads((CAPTURES / "metric-specs.json").read_text())}
    spec = declared[f"sglang:{family.name}"]
    assert family.kind == spec["type"]
    assert [*base, *family.labels] == spec["labels"]
    assert list(family.buckets) == (spec["buckets"] or [])
    if family.kind == "gauge":
        assert family.mode == (spec["multiprocess_mode"] or "all")  # prometheus_client's default


def test_every_logged_gauge_has_a_field() -> None:
    """A gauge of the table that no field feeds would never be shown."""
    assert set(LoggedStats.__dataclass_fields__) == {family.name for family in specs.LOGGED}


# --- the page against a page that SGLang's collectors printed, driven by the same script

NOT_SHOWN = {  # captured families that the workload leaves out
    "sglang:evicted_tokens_total counter": "the radix cache's own; a server shows it after its first eviction",
    "sglang:eviction_duration_seconds histogram": "the same",
}
SHOWN_TOO = {"sglang:http_requests_active gauge": "needs a served request, and the capture's requests were counted by hand"}
OTHER_SERIES = {  # captured by hand, ours come from the requests that fetched the page
    "sglang:http_requests_total",
    "sglang:http_responses_total",
    "sglang:http_requests_active",
}
OTHER_VALUES = {  # the same series with another number
    "sglang:scheduler_process_cpu_seconds_total": "the capture set none; ours is the child's real CPU time",
    "sglang:startup_available_gpu_memory_gb": "no card to ask",
    "sglang:is_cuda_graph": "dead in a real server, set by hand in the capture",
    "sglang:e2e_request_latency_seconds_sum": "the capture's time per token did not follow from its latencies",
    "sglang:get_loads_duration_seconds_sum": "a real duration",
    "sglang:get_loads_duration_seconds_bucket": "a real duration",
}


@pytest.fixture(scope="module")
def captured() -> str:
    return (CAPTURES / "tp8-dp8-ep8-t1.prom").read_text()


def test_the_page_has_the_captured_families(drive: Drive, captured: str) -> None:
    """Same names and types, but for the listed ones."""
    ours = types(drive("as_captured")["after"]["text"])
    assert ours - SHOWN_TOO.keys() == types(captured) - NOT_SHOWN.keys()


def test_the_page_has_the_captured_series_and_values(drive: Drive, captured: str) -> None:
    """Driven by the same script, every series of the capture is there, with its labels, no other one is, and the numbers agree."""
    left_out = {name.split(" ")[0] for name in NOT_SHOWN} | OTHER_SERIES

    def compared(page: str) -> dict[Series, float]:
        return {
            key: x
            for key, x in samples(page).items()
            if key[0] not in left_out and not key[0].startswith("sglang:eviction_duration_seconds")
        }

    ours, theirs = compared(drive("as_captured")["after"]["text"]), compared(captured)
    assert ours.keys() == theirs.keys()
    differing = {key[0] for key in theirs if ours[key] != pytest.approx(theirs[key], rel=1e-9)}
    assert differing - OTHER_VALUES.keys() == set()


def test_a_scraper_that_asks_for_openmetrics_gets_the_escaped_names(drive: Drive) -> None:
    """prometheus_client >= 0.23.1 renames samples unless the scraper allows UTF-8: both spellings are served as the real server does."""
    replies = drive("as_captured")
    labels = 'dp_rank="1",engine_type="unified",model_name="deepseek-ai/DeepSeek-V3",moe_ep_rank="1",pp_rank="0",tp_rank="1"'
    line = f"num_running_reqs{{{labels}}} 24.0"
    assert f"\nsglang:{line}\n" in replies["plain"]["text"]
    assert f"\nsglang_{line}\n" in replies["openmetrics"]["text"]
    assert f"\nsglang:{line}\n" in replies["utf8"]["text"]
    assert replies["plain"]["content_type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert replies["openmetrics"]["content_type"].startswith("application/openmetrics-text; version=1.0.0; charset=utf-8")


def test_only_the_two_gauges_of_mode_all_carry_a_pid(drive: Drive, captured: str) -> None:
    """The extra label that makes these two churn at each restart."""
    with_pid = {name for name, labels in samples(drive("as_captured")["after"]["text"]) if ("pid", "") in labels}
    assert with_pid == {"sglang:num_retracted_reqs", "sglang:num_paused_reqs"}
    assert with_pid == {name for name, labels in samples(captured) if ("pid", "") in labels}


def test_ranks_other_than_0_show_an_empty_ratio_histogram(drive: Drive) -> None:
    """All ranks have the series, rank 0 alone observes: 400 steps there, none elsewhere."""
    found = samples(drive("as_captured")["after"]["text"])
    counts = [value(found, "dp_attention_token_imbalance_ratio_count", dp_rank=str(rank)) for rank in range(8)]
    assert counts == [400.0, *[0.0] * 7]


def test_metrics_cost_a_rank_little(drive: Drive) -> None:
    """All recording of a step, gauges and flushes included, stays far below the 0.3 ms that a step may cost a rank's CPU."""
    costs = drive("as_captured")["cost"]
    assert len(costs) == 8
    assert max(costs) < 0.0003


# --- what is there before anything happened, and what is not


def test_a_fresh_rank_shows_constants_and_zeros_only(drive: Drive) -> None:
    """Absent is not 0: counters without pre-created children and the logged gauges are not on the page yet."""
    found = samples(drive("fresh")["plain"]["text"])
    of_ranks = {(name, labels): x for (name, labels), x in found.items() if any(label == "tp_rank" for label, _ in labels)}
    names = {family.name for family in (*specs.CONSTANTS, *specs.FROM_START)}
    assert {re.sub("_(sum|count|bucket)$", "", name) for name, _ in of_ranks} == {f"sglang:{name}" for name in names}
    constant = {f"sglang:{family.name}" for family in specs.CONSTANTS}
    assert {x for (name, _), x in of_ranks.items() if name not in constant} == {0.0}


def test_children_that_sglang_makes_at_start_are_there_at_0(drive: Drive) -> None:
    """Both kinds and states, every stage without overlap, every mode of the effective tokens."""
    found = samples(drive("fresh")["plain"]["text"])
    for rank in ("0", "1"):
        for kind in ("scheduled", "imbalance"):
            assert value(found, "dp_attention_tokens_total", dp_rank=rank, kind=kind) == 0
            assert value(found, "dp_attention_pairs_total", dp_rank=rank, kind=kind) == 0
        for state in ("active", "idle"):
            assert value(found, "dp_attention_steps_total", dp_rank=rank, rank_state=state) == 0
        for stage in specs.STAGES:
            assert value(found, "scheduler_stage_seconds_total", dp_rank=rank, category=stage, forward_overlap="none") == 0
        for mode in specs.EFFECTIVE_TOKENS:
            assert value(found, "prefill_effective_tokens_total", dp_rank=rank, mode=mode) == 0
        assert value(found, "dp_attention_sync_wait_seconds_count", dp_rank=rank) == 0


def test_a_single_rank_has_no_dp_rank_and_records_no_balance(drive: Drive) -> None:
    """Without a data-parallel controller SGLang has neither."""
    found = samples(drive("alone")["plain"]["text"])
    assert value(found, "max_total_num_tokens", tp_rank="0") == 450000
    assert not any(label == "dp_rank" for _, labels in found for label, _ in labels)
    assert value(found, "dp_attention_steps_total", rank_state="active") == 0


# --- arithmetic


def test_one_long_context_shows_as_pairs_and_not_as_tokens(drive: Drive) -> None:
    """8 ranks x 4 requests at 8192 tokens, one of 204,800 on rank 0: 229,376 pairs a step against 32,768, tokens level."""
    found = samples(drive("one_long_context")["plain"]["text"])
    steps = 10
    for rank in range(8):
        on = {"dp_rank": str(rank)}
        assert value(found, "dp_attention_tokens_total", **on, kind="scheduled") == 4 * steps
        assert value(found, "dp_attention_tokens_total", **on, kind="imbalance") == 0
        assert value(found, "dp_attention_pairs_total", **on, kind="scheduled") == (229376 if rank == 0 else 32768) * steps
        assert value(found, "dp_attention_pairs_total", **on, kind="imbalance") == (0 if rank == 0 else 196608) * steps
        assert value(found, "dp_attention_steps_total", **on, rank_state="active") == steps
        assert value(found, "dp_attention_steps_total", **on, rank_state="idle") == 0


def test_a_step_without_tokens_is_not_recorded(drive: Drive) -> None:
    """The eleventh exchange found no rank with work: its half second of waiting is in no series."""
    found = samples(drive("one_long_context")["plain"]["text"])
    for rank in range(8):
        assert value(found, "dp_attention_sync_wait_seconds_count", dp_rank=str(rank)) == 10
        assert value(found, "dp_attention_sync_wait_seconds_sum", dp_rank=str(rank)) == pytest.approx(0.02)
    assert value(found, "dp_attention_token_imbalance_ratio_sum", dp_rank="0") == 10  # level tokens: 1.0 a step


def test_an_idle_rank_counts_idle_steps_and_the_whole_imbalance(drive: Drive) -> None:
    """3 tokens against none: the ratio is max * ranks / sum = 2, and scheduled + imbalance is the same on both ranks."""
    found = samples(drive("everything")["plain"]["text"])
    assert value(found, "dp_attention_steps_total", dp_rank="1", rank_state="idle") == 1
    assert value(found, "dp_attention_tokens_total", dp_rank="1", kind="imbalance") == 3
    assert value(found, "dp_attention_pairs_total", dp_rank="1", kind="imbalance") == 900
    assert value(found, "dp_attention_token_imbalance_ratio_sum", dp_rank="0") == 2
    assert value(found, "dp_attention_token_imbalance_ratio_bucket", dp_rank="0", le="1.5") == 0
    assert value(found, "dp_attention_token_imbalance_ratio_bucket", dp_rank="0", le="2.0") == 1
    assert value(found, "dp_attention_sync_wait_seconds_bucket", dp_rank="1", le="0.0001") == 1


def test_event_counters_appear_with_their_first_event(drive: Drive) -> None:
    """On the rank where something happened, and not on the other."""
    found = samples(drive("everything")["plain"]["text"])
    expected: list[tuple[str, dict[str, str], float]] = [
        ("cuda_graph_passes_total", {"mode": "prefill_none"}, 1),
        ("cuda_graph_passes_total", {"mode": "decode_none"}, 1),
        ("realtime_tokens_total", {"mode": "prefill_compute"}, 700),
        ("realtime_tokens_total", {"mode": "prefill_cache"}, 300),
        ("dp_cooperation_realtime_tokens_total", {"mode": "prefill_compute", "num_prefill_ranks": "1"}, 700),
        ("dp_cooperation_realtime_tokens_total", {"mode": "prefill_cache", "num_prefill_ranks": "1"}, 300),
        ("num_retracted_requests_total", {}, 2),
        ("num_retracted_input_tokens_total", {}, 4096),
        ("num_retracted_output_tokens_total", {}, 100),
        ("queue_time_seconds_count", {}, 1),
    ]
    for name, labels, x in expected:
        assert value(found, name, dp_rank="0", **labels) == x
        assert value(found, name, dp_rank="1", **labels) is None
    assert value(found, "realtime_tokens_total", dp_rank="0", mode="decode") is None  # no tokens, no series
    assert value(found, "prefill_effective_tokens_total", dp_rank="0", mode="input") == 700
    assert value(found, "prefill_effective_tokens_total", dp_rank="0", mode="device_hit") == 300
    assert value(found, "scheduler_idle_seconds_total", dp_rank="1") == 0.5


def test_stages_and_cpu_wait_for_the_flush(drive: Drive) -> None:
    """0.9 s after the first tick nothing is written; `as_captured` ticked on and has both."""
    early = samples(drive("everything")["plain"]["text"])
    assert value(early, "scheduler_stage_seconds_total", dp_rank="0", category="run_batch") == 0
    assert value(early, "scheduler_process_cpu_seconds_total", dp_rank="0") == 0
    late = samples(drive("as_captured")["plain"]["text"])
    ran = value(late, "scheduler_stage_seconds_total", dp_rank="0", category="run_batch", forward_overlap="full")
    assert ran == pytest.approx(400 * 0.0041)
    cpu = value(late, "scheduler_process_cpu_seconds_total", dp_rank="0")
    assert cpu is not None
    assert 0 < cpu < 5


def test_tokens_that_arrive_together_share_their_gap(drive: Drive) -> None:
    """Three tokens after 60 ms are three gaps of 20 ms; one gap of 10 s lies beyond the last bound; none is none."""
    found = samples(drive("everything")["plain"]["text"])
    assert value(found, "inter_token_latency_seconds_count") == 4
    assert value(found, "inter_token_latency_seconds_sum") == pytest.approx(10.06)
    assert value(found, "inter_token_latency_seconds_bucket", le="0.015") == 0
    assert value(found, "inter_token_latency_seconds_bucket", le="0.02") == 3
    assert value(found, "inter_token_latency_seconds_bucket", le="8.0") == 3
    assert value(found, "inter_token_latency_seconds_bucket", le="+Inf") == 4


def test_a_request_of_one_token_has_no_time_per_output_token(drive: Drive) -> None:
    """Nor does a request without a cache hit make a series of cached tokens."""
    found = samples(drive("everything")["plain"]["text"])
    assert value(found, "num_requests_total", is_streaming="true") == 1
    assert value(found, "request_time_per_output_token_seconds_count", is_streaming="true") is None
    assert value(found, "cached_tokens_total", cache_source="total") is None


# --- mistakes


def test_without_the_directory_a_rank_refuses_to_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its counters would live in its own memory and no scrape would ever see them."""
    monkeypatch.setattr("prometheus_client.values.ValueClass", sys.modules["prometheus_client.values"].MutexValue)
    with pytest.raises(RuntimeError, match="set it before the process imports prometheus_client"):
        SchedulerMetrics(model_name="m", rank=0, ranks=2)


def test_occupancy_is_nan_unless_measured() -> None:
    """As SGLang's is without forwards to time."""
    assert math.isnan(LoggedStats().fwd_occupancy)
