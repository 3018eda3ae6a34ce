"""SGLang's /metrics in canonical signals. Captures are printed by SGLang 0.5.23's own collectors."""

from __future__ import annotations

import random

import numpy as np
import pytest

from collector import signals
from collector.engines import sglang
from collector.engines.sglang_metrics import ROWS, STAGES
from collector.intake import Intake
from collector.model import Window
from tests.collector.sglang_pages import CAPTURES, T1, T2, TP4, capture, official, official_total, read, said


def plan(step: int, ranks: int = 8) -> tuple[list[int], list[int]]:
    """Tokens and pairs per rank of a step, as the script that drove the collectors for the captures made them."""
    rng = random.Random(step)
    tokens = [rng.randint(20, 28) for _ in range(ranks)]
    tokens[0] += 24
    if step % 10 == 0:
        tokens[-1] = 0
    return tokens, [t * rng.randint(3000, 5000) for t in tokens]


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


def test_rows_name_each_signal_once() -> None:
    """The table is the mapping: a signal in two rows would be overwritten."""
    names = [row.signal for row in ROWS]
    assert len(names) == len(set(names))
