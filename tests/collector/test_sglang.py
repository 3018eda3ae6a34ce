"""SGLang's /metrics in canonical signals, and what only two pages tell. Captures are printed by SGLang 0.5.23's own collectors."""

from __future__ import annotations

import random
import re
from pathlib import Path

import numpy as np
import pytest
from prometheus_client.parser import text_string_to_metric_families

from collector import signals
from collector.engines import sglang, sglang_loads
from collector.engines.sglang_metrics import ROWS, STAGES
from collector.errors import SourceError
from collector.intake import Intake
from collector.model import Engine, Page, Reading, Source, Window

TESTS = Path(__file__).parents[1]
CAPTURES = TESTS / "captures" / "sglang-0.5.23"
CASES = TESTS / "field_cases"
T1, T2, TP4 = "tp8-dp8-ep8-t1.prom", "tp8-dp8-ep8-t2.prom", "tp4-dp2-ep4.prom"


def page(body: str | bytes, arrived: float = 1000.0, node: str = "http://h:30000") -> Page:
    raw = body.encode() if isinstance(body, str) else body
    return Page("h:30000", node, Source.SGLANG_METRICS, arrived, 0.1, 200, "text/plain; version=0.0.4", raw)


def capture(name: str, arrived: float = 1000.0, node: str = "http://h:30000") -> Page:
    return page((CAPTURES / name).read_bytes(), arrived, node)


def read(body: str | bytes) -> Reading:
    return sglang.read(page(body))


def case(name: str) -> str:
    return (CASES / name).read_text()


def said(reading: Reading) -> str:
    return "\n".join(map(str, reading.problems))


def plan(step: int, ranks: int = 8) -> tuple[list[int], list[int]]:
    """Tokens and pairs per rank of a step, as the script that drove the collectors for the captures made them."""
    rng = random.Random(step)
    tokens = [rng.randint(20, 28) for _ in range(ranks)]
    tokens[0] += 24
    if step % 10 == 0:
        tokens[-1] = 0
    return tokens, [t * rng.randint(3000, 5000) for t in tokens]


def official(name: str, sample: str, **where: str) -> dict[int, float]:
    """Sum per dp_rank of a sample by the official parser."""
    found: dict[int, float] = {}
    for family in text_string_to_metric_families((CAPTURES / name).read_text()):
        for one in family.samples:
            if one.name == sample and all(one.labels.get(k) == v for k, v in where.items()):
                rank = int(one.labels["dp_rank"])
                found[rank] = found.get(rank, 0.0) + one.value
    return found


@pytest.fixture
def window() -> Window:
    intake = Intake()
    intake.feed(capture(T1, 1000.0))
    intake.feed(capture(T2, 1010.0))
    return intake.window("h:30000")


def test_counters_are_what_the_official_parser_reads() -> None:
    """Each per-rank counter of a page is the official parser's sum over the labels that are not its identity."""
    reading = sglang.read(capture(T1))
    stage = "sglang:scheduler_stage_seconds_total"
    work = [official(T1, stage, category=c) for c in ("other", "get_next_batch_to_run", "run_batch", "process_queue")]
    expected = {
        signals.ATTENTION_TOKENS: official(T1, "sglang:dp_attention_tokens_total", kind="scheduled"),
        signals.ATTENTION_PAIRS: official(T1, "sglang:dp_attention_pairs_total", kind="scheduled"),
        signals.IMBALANCE_PAIRS: official(T1, "sglang:dp_attention_pairs_total", kind="imbalance"),
        signals.STEPS_ACTIVE: official(T1, "sglang:dp_attention_steps_total", rank_state="active"),
        signals.STEPS_IDLE: official(T1, "sglang:dp_attention_steps_total", rank_state="idle"),
        signals.SYNC_WAIT: official(T1, "sglang:dp_attention_sync_wait_seconds_sum"),
        signals.RECV_WAIT: official(T1, stage, category="recv_requests"),
        signals.FORWARD_TIME: official(T1, "sglang:forward_execution_seconds_total"),
        signals.GRAPH_STEPS: official(T1, "sglang:cuda_graph_passes_total", mode="decode_cuda_graph"),
        STAGES: {rank: sum(part.get(rank, 0.0) for part in work) for rank in range(8)},
    }
    for name, of_rank in expected.items():
        assert dict(reading.values[name]) == pytest.approx(of_rank), name
    assert set(reading.values[signals.STEPS_ACTIVE]) == set(range(8))
    assert reading.problems == ()
    assert set(reading.times.values()) == {1000.0}
    assert (reading.facts.model, reading.facts.role) == ("deepseek-ai/DeepSeek-V3", "unified")


def test_rates_are_the_plan_that_drove_the_collectors(window: Window) -> None:
    """400 to 900 steps in 10 s: 50 steps/s on every rank, tokens and pairs as planned, imbalance the busiest rank's minus one's own."""
    tokens = np.array([plan(step)[0] for step in range(400, 900)], dtype=float)
    pairs = np.array([plan(step)[1] for step in range(400, 900)], dtype=float)
    assert window.ranks == tuple(range(8))
    assert window.edges.tolist() == [1000.0, 1010.0]
    steps = window.mean(signals.STEPS_ACTIVE) + window.mean(signals.STEPS_IDLE)
    assert steps == pytest.approx(np.full(8, 50.0))
    assert window.mean(signals.STEPS_IDLE)[7] == pytest.approx(5.0)
    assert window.mean(signals.ATTENTION_TOKENS) == pytest.approx(tokens.sum(axis=0) / 10)
    assert window.mean(signals.ATTENTION_PAIRS) == pytest.approx(pairs.sum(axis=0) / 10)
    assert window.mean(signals.IMBALANCE_PAIRS) == pytest.approx((pairs.max(axis=1)[:, None] - pairs).sum(axis=0) / 10)
    assert window.mean(signals.SYNC_WAIT) == pytest.approx(np.array([0.0002, *[0.0031] * 7]) * 50)
    assert window.mean(signals.RECV_WAIT) == pytest.approx(np.full(8, 0.0004 * 50))
    assert window.mean(signals.FORWARD_TIME) == pytest.approx(np.full(8, 0.0252 * 50))


def test_scheduler_work_is_the_stages_less_the_sync_wait_inside_them(window: Window) -> None:
    """get_next_batch 1.2 ms + run_batch 4.1 ms + other .3 ms a step; of it .2 ms is rank 0's sync wait and 3.1 ms the others'."""
    assert window.mean(signals.SCHEDULER_WORK) == pytest.approx(np.array([0.0054, *[0.0025] * 7]) * 50)
    assert not any(name.startswith("_") for name in window.values)


def test_an_openmetrics_page_gives_the_same_reading() -> None:
    """The OpenMetrics encoder of newer Prometheus clients writes sglang_x for sglang:x; nothing else changes."""
    plain, open_metrics = sglang.read(capture(T1)), sglang.read(capture("tp8-dp8-ep8-t1.openmetrics"))
    assert open_metrics.values == plain.values
    assert open_metrics == plain


def test_ranks_that_keep_no_statistics_do_not_zero_those_that_do() -> None:
    """tp 4, attention dp 2: the odd TP ranks show created zeros; rank 0 is read from tp 0 and rank 1 from tp 2, nothing twice."""
    reading = sglang.read(capture(TP4))
    assert dict(reading.values[signals.STEPS_ACTIVE]) == {0: 60.0, 1: 54.0}
    assert dict(reading.values[signals.STEPS_IDLE]) == {0: 0.0, 1: 6.0}
    assert dict(reading.values[signals.GRAPH_STEPS]) == {0: 60.0, 1: 54.0}
    assert dict(reading.values[signals.RECV_WAIT]) == pytest.approx({0: 60 * 0.0004, 1: 60 * 0.0004})
    assert dict(reading.speakers) == {0: 0, 1: 2}


def test_first_tokens_are_the_front_ends_and_of_streaming_requests() -> None:
    """Sum and count without a rank; what is not streamed has its first token with its last and is left out; older pages have no label."""
    text = (
        'sglang:time_to_first_token_seconds_sum{is_streaming="true",model_name="m"} 7.5\n'
        'sglang:time_to_first_token_seconds_count{is_streaming="true",model_name="m"} 5\n'
        'sglang:time_to_first_token_seconds_sum{is_streaming="false",model_name="m"} 90\n'
        'sglang:time_to_first_token_seconds_count{is_streaming="false",model_name="m"} 3\n'
    )
    found = read("# TYPE sglang:time_to_first_token_seconds histogram\n" + text)
    assert found.values == {signals.FIRST_TOKEN_TIME: {-1: 7.5}, signals.FIRST_TOKENS: {-1: 5.0}}
    assert "none of SGLang's per-rank counters" in said(found)
    plain = 'sglang:time_to_first_token_seconds_sum{model_name="m"} 7.5\nsglang:time_to_first_token_seconds_count{model_name="m"} 5\n'
    assert read("# TYPE sglang:time_to_first_token_seconds histogram\n" + plain).values == found.values
    assert read((CAPTURES / T1).read_bytes()).values[signals.FIRST_TOKENS] == official_total(T1, "sglang:time_to_first_token_seconds_count")


def official_total(name: str, sample: str) -> dict[int, float]:
    """A front-end sample by the official parser, under the engine's row."""
    families = text_string_to_metric_families((CAPTURES / name).read_text())
    return {-1: sum(one.value for family in families for one in family.samples if one.name == sample)}


def test_balancedness_is_the_engines() -> None:
    """50 observations of .71, printed once for the whole engine: rank -1."""
    reading = sglang.read(capture(T1))
    assert dict(reading.values[signals.BALANCEDNESS_SUM]) == pytest.approx({-1: 35.5})
    assert dict(reading.values[signals.BALANCEDNESS_COUNT]) == {-1: 50.0}


def test_expert_load_is_the_difference_of_neighbouring_buckets() -> None:
    """Bucket index = EP rank: the driver put 100 (g + 1) tokens on EP rank g in each of two layers."""
    reading = sglang.read(capture(T1))
    assert dict(reading.values[signals.EXPERT_LOAD]) == {rank: 200.0 * (rank + 1) for rank in range(8)}


def test_expert_load_is_absent_where_a_dp_rank_spans_two_ep_ranks() -> None:
    """tp 4, dp 2, ep 4: no number can be given per DP rank, and the page's problems say so."""
    reading = sglang.read(capture(TP4))
    assert signals.EXPERT_LOAD not in reading.values
    assert "spans several EP ranks" in said(reading)


def test_expert_load_of_ranks_on_other_nodes_follows_the_aligned_layout() -> None:
    """World rank 0 counts for all EP ranks; the other node's ranks are on its own page, but the labels prove one card per rank."""
    first_node = "\n".join(line for line in (CAPTURES / T1).read_text().splitlines() if not re.search(r'dp_rank="[4-7]"', line)) + "\n"
    reading = read(first_node)
    assert set(reading.values[signals.STEPS_ACTIVE]) == {0, 1, 2, 3}
    assert dict(reading.values[signals.EXPERT_LOAD]) == {rank: 200.0 * (rank + 1) for rank in range(8)}


@pytest.mark.parametrize(
    ("edit", "why"),
    [
        (lambda s: s.replace('moe_ep_rank="3"', 'moe_ep_rank="2"'), "share an EP rank"),
        (lambda s: re.sub(r'moe_ep_rank="\d"', 'moe_ep_rank=""', s), "no series carries"),
        (lambda s: s.replace('le="3.0"} 1000.0', 'le="3.0"} 10.0'), "do not count up"),
        (lambda s: s.replace('layer="3",le="3.0"', 'layer="3",le="x"'), "do not count up"),
    ],
)
def test_expert_load_without_a_sure_mapping_is_absent(edit: object, why: str) -> None:
    """Whatever makes the mapping or the buckets doubtful costs this signal only, and is said."""
    assert callable(edit)
    reading = read(edit((CAPTURES / T1).read_text()))
    assert signals.EXPERT_LOAD not in reading.values
    assert why in said(reading)
    assert len(reading.values[signals.STEPS_ACTIVE]) == 8


def test_graph_steps_that_never_happened_are_zero_and_unknown_counters_absent() -> None:
    """A counter whose family or newer sibling is on the page was not incremented yet; without such proof absent stays absent."""
    reading = sglang.read(capture(T1))
    assert dict(reading.values[signals.EAGER_STEPS]) == dict.fromkeys(range(8), 0.0)
    assert dict(reading.values[signals.RETRACTED]) == dict.fromkeys(range(8), 0.0)
    old = read('sglang:realtime_tokens_total{dp_rank="0",mode="decode",tp_rank="0"} 5\n')
    assert not {signals.EAGER_STEPS, signals.GRAPH_STEPS, signals.RETRACTED} & set(old.values)


def test_a_counter_of_an_older_version_is_read_under_its_old_name() -> None:
    """gpu_execution_seconds_total became forward_execution_seconds_total in 0.5.12."""
    reading = read('sglang:gpu_execution_seconds_total{dp_rank="1",category="decode",tp_rank="1"} 5\n')
    assert dict(reading.values[signals.FORWARD_TIME]) == {1: 5.0}


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


def test_rows_name_each_signal_once() -> None:
    """The table is the mapping: a signal in two rows would be overwritten."""
    names = [row.signal for row in ROWS]
    assert len(names) == len(set(names))


def made(values: dict[str, list[list[float]]], columns: int = 4) -> Window:
    """A window of two ranks and 2 s intervals as the store would give it."""
    return Window(
        Engine("e", "sglang"),
        np.linspace(1000.0, 1000.0 + 2 * columns, columns + 1),
        (0, 1),
        {k: np.array(v) for k, v in values.items()},
        9,
    )


def test_dp_attention_counters_that_stand_still_while_tokens_flow_are_dropped() -> None:
    """The env is off: the family exists and stays 0. Its zeros must not read as idle; scheduler work goes with the sync wait."""
    zero, busy = [[0.0] * 4] * 2, [[300.0] * 4, [0.0] * 4]
    dead = (signals.STEPS_ACTIVE, signals.STEPS_IDLE, signals.ATTENTION_PAIRS, signals.ATTENTION_TOKENS, signals.SYNC_WAIT)
    for progress in ("_tokens", signals.DECODE_STEPS, signals.PREFILL_TOKENS):
        window = sglang.adjust(made({**dict.fromkeys(dead, zero), progress: busy, STAGES: [[0.5] * 4] * 2, signals.RECV_WAIT: busy}))
        assert not set(dead) & set(window.values)
        assert signals.SCHEDULER_WORK not in window.values
        assert signals.RECV_WAIT in window.values
        assert "SGLANG_ENABLE_METRICS_DP_ATTENTION=1" in str(window.problems[0])


def test_dp_attention_counters_of_an_idle_engine_stay() -> None:
    """Nothing moves at all: zero steps is the truth, and nothing is said about the env."""
    window = sglang.adjust(made({signals.STEPS_ACTIVE: [[0.0] * 4] * 2, signals.STEPS_IDLE: [[0.0] * 4] * 2, "_tokens": [[0.0] * 4] * 2}))
    assert window.has(signals.STEPS_ACTIVE)
    assert window.problems == ()


def test_the_env_missing_on_one_node_costs_its_ranks_only() -> None:
    """Every rank takes part in every step, so a rank without steps beside one that has them does not record them."""
    window = sglang.adjust(made({signals.STEPS_ACTIVE: [[50.0] * 4, [0.0] * 4], signals.STEPS_IDLE: [[0.0] * 4] * 2}))
    assert np.isnan(window.get(signals.STEPS_ACTIVE)[1]).all()
    assert (window.get(signals.STEPS_ACTIVE)[0] == 50).all()
    assert "on rank 1" in str(window.problems[0])


def test_a_forward_time_that_stands_still_while_steps_go_on_is_absent() -> None:
    """The device timer is off; 0 s of forwards would be a wrong fact."""
    window = sglang.adjust(made({signals.STEPS_ACTIVE: [[50.0] * 4] * 2, signals.FORWARD_TIME: [[0.0] * 4] * 2}))
    assert signals.FORWARD_TIME not in window.values
    assert "SGLANG_ENABLE_METRICS_DEVICE_TIMER=1" in str(window.problems[0])


def test_scheduler_work_is_never_negative_and_right_in_sum() -> None:
    """Stage seconds are flushed about once a second, the sync wait at once: single intervals may say more wait than stages."""
    stages = [[0.0, 0.6, 0.0, 0.6], [0.3] * 4]
    sync = [[0.2] * 4, [np.nan, 0.1, 0.1, 0.1]]
    window = sglang.adjust(made({STAGES: stages, signals.SYNC_WAIT: sync}))
    work = window.get(signals.SCHEDULER_WORK)
    assert (work[np.isfinite(work)] >= 0).all()
    assert work[0].sum() == pytest.approx(1.2 - 0.8)
    assert np.isnan(work[1, 0])
    assert work[1, 1:] == pytest.approx(0.2)


def test_ranks_whose_node_is_not_scraped_are_named() -> None:
    """Load snapshots know all ranks, a node's /metrics only its own."""
    nan = [np.nan] * 4
    window = sglang.adjust(made({signals.RUNNING: [[1.0] * 4] * 2, STAGES: [[0.5] * 4, nan], signals.SYNC_WAIT: [[0.1] * 4, nan]}))
    assert "no counters of rank 1" in str(window.problems[-1])


def test_frozen_counters_are_told_per_rank() -> None:
    """The signals dropped on rank 1 are named as there but standing still; those of rank 0 and the helpers are not."""
    moving, still = [1.0] * 4, [0.0] * 4
    values = {signals.STEPS_ACTIVE: [moving, still], signals.STEPS_IDLE: [still, still], signals.SYNC_WAIT: [moving, still]}
    adjusted = sglang.adjust(made(values | {signals.PREFILL_TOKENS: [moving, moving]}))
    assert adjusted.frozen == {signals.STEPS_ACTIVE: (1,), signals.STEPS_IDLE: (1,), signals.SYNC_WAIT: (1,)}
    assert sglang.adjust(made({signals.PREFILL_TOKENS: [moving, moving]})).frozen == {}


def test_accept_length_is_the_windows_own() -> None:
    """Tokens over rows of the window's decode steps replace the scheduler's life-long mean; a rank that ran none is unknown."""
    rows, tokens = [[8.0] * 4, [0.0] * 4], [[20.0] * 4, [0.0] * 4]
    life = {signals.ACCEPT_LENGTH: [[1.9] * 4, [1.9] * 4]}
    found = sglang.adjust(made(life | {sglang_loads.ROWS: rows, sglang_loads.TOKENS: tokens})).mean(signals.ACCEPT_LENGTH)
    assert found[0] == pytest.approx(2.5)
    assert np.isnan(found[1])
    assert list(sglang.adjust(made(life)).mean(signals.ACCEPT_LENGTH)) == pytest.approx([1.9, 1.9])
