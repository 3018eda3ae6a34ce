"""vLLM's /metrics in canonical signals, which rank is which, and what only two pages tell. Captures are of real runs of vLLM 0.32.0."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector import signals
from collector.engines import vllm
from collector.engines.kinds import recognise
from collector.engines.vllm_metrics import GAP_TIME, GAPS, ITERATIONS
from collector.errors import SourceError
from collector.intake import Intake
from collector.model import Clock, Page, Reading, Source, Window

TESTS = Path(__file__).parents[1]
CAPTURES = TESTS / "captures" / "vllm-0.32.0"
CASES = TESTS / "field_cases"
A, B, C = "http://a:8000", "http://b:8000", "http://c:8000"
CACHE = 1048576.0  # kv_cache_size_tokens of the captures


def page(body: str | bytes, arrived: float = 1000.0, node: str = A, engine: str = "a:8000") -> Page:
    raw = body.encode() if isinstance(body, str) else body
    return Page(engine, node, Source.VLLM_METRICS, arrived, 0.1, 200, "text/plain; version=0.0.4", raw)


def body(name: str) -> bytes:
    return (CAPTURES / f"{name}.prom").read_bytes()


def read(text: str | bytes) -> Reading:
    return vllm.read(page(text))


def said(found: Reading | Window) -> str:
    return "\n".join(map(str, found.problems))


def pair(name: str, seconds: float, clock: Clock | None = None) -> Window:
    intake = Intake(clock=clock)
    intake.feed(page(body(f"{name}1")))
    intake.feed(page(body(f"{name}2"), 1000.0 + seconds))
    return intake.window("a:8000")


def engines(*numbers: int, model: str = "m") -> str:
    return "".join(f'vllm:num_requests_running{{engine="{n}",model_name="{model}"}} {n + 1}.0\n' for n in numbers)


def test_a_real_page_is_read_per_engine() -> None:
    """The figures that the page of the slowed dense run prints, engine by engine."""
    reading = read(body("slowdense-2"))
    assert reading.values[signals.RUNNING] == {0: 6.0, 1: 6.0}
    assert reading.values[signals.WAITING] == {0: 0.0, 1: 0.0}
    assert reading.values[signals.PREFILL_TOKENS] == {0: 4448.0, 1: 1280.0}
    assert reading.values[signals.CACHED_TOKENS] == {0: 0.0, 1: 0.0}
    assert reading.values[GAPS] == {0: 8592.0, 1: 2254.0}
    assert reading.values[GAP_TIME] == {0: 107.31293148300301, 1: 186.7743306060006}
    assert reading.values[ITERATIONS] == {0: 2416.0, 1: 372.0}
    assert reading.values[signals.RESIDENT_TOKENS][0] == pytest.approx(0.0007325112928824318 * CACHE)
    assert reading.facts.model == "tiny-llama"
    assert reading.problems == ()


def test_step_time_is_the_gap_between_outputs() -> None:
    """The rank slowed by 60 ms: 13.1 and 84.0 ms were measured; the request counts are equal."""
    window = pair("slowdense-", 18.0)
    step = window.mean(signals.DECODE_TIME) / window.mean(signals.DECODE_STEPS)
    assert step == pytest.approx([0.0131, 0.0840], rel=0.01)


def test_with_one_api_server_iterations_are_steps() -> None:
    """Lockstep run with --api-server-count 1: the count's own rate."""
    before, after = read(body("slowmoe-1")).values[ITERATIONS], read(body("slowmoe-2")).values[ITERATIONS]
    expected = [(after[r] - before[r]) / 18.0 for r in (0, 1)]
    assert pair("slowmoe-", 18.0).mean(signals.STEPS_ACTIVE) == pytest.approx(expected)


def test_with_several_api_servers_iterations_are_not_steps() -> None:
    """The default of two: 31.7 and 24.9 a second are counted where a step takes 65.6 and 68.8 ms."""
    window = pair("", 10.0)
    assert window.mean(signals.STEPS_ACTIVE) == pytest.approx([1 / 0.0656, 1 / 0.0688], rel=0.01)


def test_idle_steps_of_a_lockstep_are_the_busiest_ranks() -> None:
    """A rank without work runs dummy batches that no page shows; dense ranks stand still; of an unknown clock nothing is said."""
    lockstep, dense, unknown = (pair("", 10.0, clock) for clock in (Clock.FORWARD, Clock.NONE, None))
    active = lockstep.mean(signals.STEPS_ACTIVE)
    assert lockstep.mean(signals.STEPS_IDLE) == pytest.approx(active.max() - active)
    assert dense.mean(signals.STEPS_IDLE) == pytest.approx([0.0, 0.0])
    assert unknown.engine.clock is Clock.UNKNOWN
    assert not unknown.has(signals.STEPS_IDLE)


def test_scheduled_tokens_are_computed_prompts_and_output() -> None:
    """What a cache holds is not computed; the run that was measured put out 371 and 87 tokens a second."""
    window = pair("slowdense-", 18.0)
    assert window.mean(signals.ATTENTION_TOKENS) - window.mean(signals.PREFILL_TOKENS) == pytest.approx([371, 87], rel=0.03)


def open_metrics(text: bytes) -> str:
    """The same page as an OpenMetrics writer spells it: TYPE without _total, model_name first, an end mark."""
    out = re.sub(rb"^# (HELP|TYPE) (vllm:\S+?)_total", rb"# \1 \2", text, flags=re.MULTILINE).decode()
    out = re.sub(r'\{engine="(\d+)",model_name="([^"]*)"\}', r'{model_name="\2",engine="\1"}', out)
    return out + "# EOF\n"


def test_other_spellings_say_the_same() -> None:
    """OpenMetrics as the Rust front end answers, and '_' for ':' after a trip through Ray."""
    plain = read(body("slowmoe-2")).values
    assert read(open_metrics(body("slowmoe-2"))).values == plain
    assert read(body("slowmoe-2").replace(b"vllm:", b"vllm_")).values == plain


def test_without_cache_config_kv_tokens_are_unknown_and_the_usage_is_not() -> None:
    """The Rust front end has no cache_config_info, and a label may say None."""
    bare = re.sub(rb"^vllm:cache_config_info.*\n", b"", body("slowmoe-2"), flags=re.MULTILINE)
    assert signals.RESIDENT_TOKENS not in read(bare).values
    assert signals.KV_USAGE in read(bare).values
    unsized = body("slowmoe-2").replace(b'kv_cache_size_tokens="1048576"', b'kv_cache_size_tokens="None"')
    assert signals.RESIDENT_TOKENS not in read(unsized).values  # num_gpu_blocks x block_size would be twice as much


def test_a_usage_of_zero_under_load_is_no_reading() -> None:
    """Dropped with a Problem; of an idle rank it is a reading."""
    text = engines(0, 1).replace('engine="1",model_name="m"} 2.0', 'engine="1",model_name="m"} 0.0')
    text += "".join(f'vllm:kv_cache_usage_perc{{engine="{n}",model_name="m"}} 0.0\n' for n in (0, 1))
    intake = Intake()
    for k in range(4):
        intake.feed(page(text, 1000.0 + k))
    window = intake.window("a:8000")
    assert np.isnan(window.mean(signals.KV_USAGE)[0])
    assert window.mean(signals.KV_USAGE)[1] == 0.0
    assert "is 0 on rank 0 while requests run: not reported" in said(window)


def test_nan_and_absent_are_no_reading() -> None:
    """A NaN gauge is left out, the others stay."""
    reading = read(engines(0, 1) + 'vllm:kv_cache_usage_perc{engine="0",model_name="m"} NaN\n')
    assert reading.values == {signals.RUNNING: {0: 1.0, 1: 2.0}}


def test_deferred_requests_do_not_wait_for_a_place() -> None:
    """They wait for a LoRA slot or a KV transfer; without reasons the whole count is taken."""
    reasons = "".join(
        f'vllm:num_requests_waiting_by_reason{{engine="0",reason="{r}",model_name="m"}} {n}\n'
        for r, n in (("capacity", 2), ("deferred", 5))
    )
    whole = 'vllm:num_requests_waiting{engine="0",model_name="m"} 7.0\n'
    assert read(whole + reasons).values[signals.WAITING] == {0: 2.0}
    assert read(whole).values[signals.WAITING] == {0: 7.0}


def test_a_page_without_engines_is_one_rank_and_stray_series_are_none() -> None:
    """Releases before `engine`; beside labelled series one without belongs to nobody; a label that is no rank is named."""
    bare = 'vllm:num_requests_running{model_name="m"} 3.0\n'
    assert read(bare).values[signals.RUNNING] == {0: 3.0}
    mixed = read(engines(0, 1) + bare)
    assert mixed.values[signals.RUNNING] == {0: 1.0, 1: 2.0}
    assert "1 series without an engine" in said(mixed)
    assert "has '-1' for an engine" in said(read('vllm:num_requests_running{engine="-1",model_name="m"} 3.0\n'))


def test_two_models_under_one_number_are_not_added() -> None:
    """A joined page: the number is there twice with different values, which is nobody's reading."""
    reading = read(engines(0) + engines(0, model="other").replace("} 1.0", "} 5.0"))
    assert reading.values.get(signals.RUNNING, {}) == {}
    assert "engine 0 is there more than once" in said(reading)


def test_a_page_of_nothing_says_what_to_do() -> None:
    """Statistics switched off: 200 and no series."""
    assert "--disable-log-stats" in said(read('http_requests_total{handler="/v1/completions"} 3.0\n'))


def test_a_failure_and_a_foreign_body_are_source_errors() -> None:
    """With the URL in the message."""
    with pytest.raises(SourceError, match="a:8000/metrics"):
        read("<html>")


def feed(*pages: Page) -> Window:
    intake = Intake()
    for one in pages:
        intake.feed(one)
    return intake.window(pages[0].engine)


def test_nodes_of_one_deployment_keep_their_numbers() -> None:
    """Hybrid, external and multi-port balancing: each port shows its own ranks under their global numbers, in whatever order they come."""
    target = "a:8000,b:8000"
    window = feed(*(page(engines(*which), 1000.0 + k, node, target) for k in range(5) for node, which in ((B, (2, 3)), (A, (0, 1)))))
    assert window.ranks == (0, 1, 2, 3)
    assert window.mean(signals.RUNNING) == pytest.approx([1, 2, 3, 4])
    assert window.engine.facts.clock is None
    assert said(window) == ""


@pytest.mark.parametrize("order", [(A, B, C), (C, B, A), (B, A, C)])
def test_servers_of_their_own_are_counted_through(order: tuple[str, ...]) -> None:
    """Each calls its engine 0: three ranks in the order of the target, no common clock, and a word on it; nobody is lost or mixed up."""
    target = "a:8000,b:8000,c:8000"
    loads = {A: "1.0", B: "20.0", C: "300.0"}
    pages = [page(engines(0).replace("1.0", loads[n]), 1000.0 + k + 0.1 * i, n, target) for k in range(6) for i, n in enumerate(order)]
    window = feed(*pages)
    assert window.ranks == (0, 1, 2)
    assert window.mean(signals.RUNNING) == pytest.approx([1, 20, 300])
    assert window.engine.clock is Clock.NONE
    assert "servers of their own" in said(window)
    assert "gone" not in said(window)
    assert "both report" not in said(window)


def test_servers_with_several_engines_each() -> None:
    """Two internal deployments of two engines joined as one target: ranks 0, 1 and 2, 3."""
    window = feed(*(page(engines(0, 1), 1000.0 + k, node, "a:8000,b:8000") for k in range(5) for node in (A, B)))
    assert window.ranks == (0, 1, 2, 3)
    assert window.mean(signals.RUNNING) == pytest.approx([1, 2, 1, 2])


def test_a_first_node_that_is_silent_does_not_silence_the_others() -> None:
    """The second page of a later node is read whether or not the first node ever answers."""
    window = feed(*(page(engines(0), 1000.0 + k, B, "a:8000,b:8000") for k in range(4)))
    assert window.mean(signals.RUNNING) == pytest.approx([1.0])


def test_the_page_says_whose_it_is() -> None:
    """Both spellings of both engines; neither's and both's pages are left to the reader that explains what is missing."""
    for text in (engines(0), engines(0).replace(":", "_"), "# TYPE vllm:num_requests_running gauge\n"):
        assert recognise(text.encode()) is Source.VLLM_METRICS
    for text in (
        "sglang:num_running_reqs 1\n",
        "process_cpu_seconds_total 1\n",
        engines(0) + "sglang:num_running_reqs 1\n",
        'x{a="vllm:"} 1\n',
    ):
        assert recognise(text.encode()) is Source.SGLANG_METRICS


LINES = st.one_of(
    st.sampled_from(body("slowmoe-2").decode().splitlines()),
    st.text(max_size=60),
    st.builds(
        lambda name, label, value: f'vllm:{name}{{engine="{label}",model_name="m"}} {value}',
        st.sampled_from(["num_requests_running", "kv_cache_usage_perc", "generation_tokens_total", "inter_token_latency_seconds_sum"]),
        st.text(max_size=6),
        st.sampled_from(["NaN", "-1", "1e400", "0", "5", "+Inf", "x"]),
    ),
)


@given(st.lists(LINES, max_size=30))
def test_whatever_a_page_holds_it_is_read_or_refused(lines: list[str]) -> None:
    """Values are finite and not negative, ranks small; nothing else is ever raised."""
    try:
        reading = read("\n".join(lines))
    except SourceError:
        return
    for found in reading.values.values():
        assert all(0 <= rank < 4096 and np.isfinite(value) and value >= 0 for rank, value in found.items())


@given(st.randoms(use_true_random=False))
def test_the_order_of_lines_and_labels_means_nothing(shuffle) -> None:
    """Samples of one page in any order are one reading."""
    lines = [line for line in body("slowmoe-1").decode().splitlines() if line.startswith("vllm:")]
    expected = read("\n".join(lines)).values
    shuffle.shuffle(lines)
    assert read("\n".join(lines)).values == expected


def test_first_tokens_are_the_whole_engines() -> None:
    """Of both engines of the page: 18 s apart, the run's mean time to a first token is what the page's own sums say."""
    window = pair("slowdense-", 18.0)
    first, second = (body(f"slowdense-{i}").decode() for i in (1, 2))

    def grown(name: str) -> float:
        found = [re.findall(rf"^vllm:time_to_first_token_seconds_{name}\{{.*\}} (\S+)$", text, re.MULTILINE) for text in (first, second)]
        return sum(map(float, found[1])) - sum(map(float, found[0]))

    assert window.mean(signals.FIRST_TOKEN_TIME) / window.mean(signals.FIRST_TOKENS) == pytest.approx(grown("sum") / grown("count"))
    assert window.mean(signals.FIRST_TOKENS) == pytest.approx([grown("count") / 18.0])


def test_first_tokens_of_some_nodes_are_not_the_engines() -> None:
    """Nothing until every node of the target has told; then their sum."""
    reader = vllm.Reader()
    text = "".join(
        f'vllm:time_to_first_token_seconds_{name}{{engine="0",model_name="m"}} {value}\n' for name, value in (("sum", 4.0), ("count", 2.0))
    )
    other = text.replace('engine="0"', 'engine="1"')
    target = "a:8000,b:8000"
    assert signals.FIRST_TOKENS not in reader.read(page(engines(0) + text, 1000.0, A, target)).values
    reading = reader.read(page(engines(1) + other, 1000.5, B, target))
    assert (reading.values[signals.FIRST_TOKEN_TIME], reading.values[signals.FIRST_TOKENS]) == ({-1: 8.0}, {-1: 4.0})


def test_an_engine_without_the_families_of_drafts_does_not_speculate() -> None:
    """vLLM registers them only with a speculative configuration: one token per request and step. A page without statistics says nothing."""
    assert read(body("slowmoe-2")).values[signals.ACCEPT_LENGTH] == {0: 1.0, 1: 1.0}
    assert signals.ACCEPT_LENGTH not in read(engines(0, 1)).values


def test_accepted_tokens_over_drafts_and_one_more_are_a_steps_tokens() -> None:
    """Rank 0: 150 of 100 drafts' tokens accepted, so 2.5 a step; rank 1: 10 of 100, so 1.1; rank 2 drafted nothing, which is no figure."""

    def drafts(done: float) -> str:
        return "".join(
            f'vllm:spec_decode_{name}_total{{engine="{rank}",model_name="m"}} {value * done}\n'
            for rank, accepted, made in ((0, 150, 100), (1, 10, 100), (2, 0, 0))
            for name, value in (("num_drafts", made), ("num_accepted_tokens", accepted))
        )

    window = feed(*(page(engines(0, 1, 2) + drafts(k), 1000.0 + k) for k in range(5)))
    assert window.mean(signals.ACCEPT_LENGTH) == pytest.approx([2.5, 1.1, np.nan], nan_ok=True)


def test_an_engine_that_hands_no_kv_over_is_unified() -> None:
    """No family of a KV transfer on a whole page; with one the role stays unsaid, as it does without statistics."""
    assert read(body("slowmoe-2")).facts.role == "unified"
    split = body("slowmoe-2") + b'vllm:nixl_num_failed_transfers_total{engine="0",model_name="tiny-mixtral"} 0.0\n'
    assert read(split).facts.role is None
    assert read(engines(0, 1)).facts.role is None
