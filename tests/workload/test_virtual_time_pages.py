"""A simulation's capture file is read like a recorded one, and its pages are those of the face."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families
from typer.testing import CliRunner

from collector import signals
from collector.capture import read_capture, replay
from collector.intake import Intake
from collector.model import Source
from slowrank.app import app
from workload import labels
from workload.config import ClusterConfig, EngineFlags
from workload.face import specs
from workload.face.loads import DisaggregationSection, LoadSnapshot, MemorySection, QueuesSection
from workload.face.loads_page import as_object, parse_include
from workload.schedule import Scheduled, parse
from workload.scheduling.settings import Speculation, Split
from workload.virtual_time.columns import columns
from workload.virtual_time.pages import MetricsPage
from workload.virtual_time.recording import START, Recording
from workload.virtual_time.simulate import simulate
from workload.virtual_time.table import Table

CAPTURED = Path(__file__).parents[1] / "captures" / "sglang-0.5.23"
SECONDS = 60


class Tee:
    """Several sinks that see the same simulation."""

    def __init__(self, *sinks) -> None:
        self.sinks = sinks

    def open(self, config, columns) -> None:
        for sink in self.sinks:
            sink.open(config, columns)

    def loads(self, at, snapshots) -> None:
        for sink in self.sinks:
            sink.loads(at, snapshots)

    def metrics(self, at, values) -> None:
        for sink in self.sinks:
            sink.metrics(at, values)


@pytest.fixture(scope="module")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Table]:
    """A minute of 8 ranks as a file and as a table; the hot experts are there to have some of every kind of series move."""
    path, table = tmp_path_factory.mktemp("simulated") / "minute.capture", Table()
    with Recording(path) as recording:
        simulate(ClusterConfig(seed=9), [parse("expert_hotspot:rank=3,onset=40")], SECONDS, Tee(recording, table))
    assert recording.pages == SECONDS + SECONDS // 5
    return path, table


def bodies(path: Path, source: Source) -> list[str]:
    return [page.body.decode() for page in read_capture(path) if page.source is source]


def test_a_replay_gives_the_rates_that_the_simulation_says(simulated):
    """Pairs, tokens, steps, waits and CPU per second of the last 20 s, rank by rank, and no page is complained about."""
    path, table = simulated
    intake = Intake()
    replay(path, intake)
    (engine,) = intake.engines()
    assert (intake.scrapes, intake.failures) == (72, 0)
    window = intake.window(engine, 20.0, START + 55.0)
    assert window.problems == ()
    assert window.ranks == tuple(range(8))
    for signal, name in (
        (signals.ATTENTION_PAIRS, 'dp_attention_pairs_total{kind="scheduled"}'),
        (signals.IMBALANCE_PAIRS, 'dp_attention_pairs_total{kind="imbalance"}'),
        (signals.ATTENTION_TOKENS, 'dp_attention_tokens_total{kind="scheduled"}'),
        (signals.STEPS_ACTIVE, 'dp_attention_steps_total{rank_state="active"}'),
        (signals.SYNC_WAIT, "dp_attention_sync_wait_seconds_sum"),
        (signals.RECV_WAIT, 'scheduler_stage_seconds_total{category="recv_requests",forward_overlap="none"}'),
        (signals.SCHEDULER_CPU, "scheduler_process_cpu_seconds_total"),
    ):
        counted = table.counter(name)
        assert window.mean(signal) == pytest.approx((counted[11] - counted[7]) / 20.0, rel=1e-6), signal
    assert np.allclose(window.mean(signals.RUNNING), table.load("running")[36:56].mean(axis=0), rtol=0.1)


def test_the_loads_page_is_the_faces(simulated):
    """The same keys in the same order as an SGLang 0.5.23 server's reply, ages of a second at most, numbers that add up."""
    path, table = simulated
    pages = [json.loads(body) for body in bodies(path, Source.SGLANG_LOADS)]
    captured = json.loads((CAPTURED / "v1-loads.json").read_text())
    assert list(pages[0]) == list(captured["slots created, never published"]["body"])
    memory, queues = MemorySection(84.0, 1.0, 2.1, 5), QueuesSection()
    snapshot = LoadSnapshot(memory=memory, disaggregation=DisaggregationSection(), queues=queues)
    face = msgspec.json.decode(msgspec.json.encode(as_object(snapshot, parse_include(None))))
    for page in pages:
        for rank, load in enumerate(page["loads"]):
            assert list(load) == list(face)
            assert list(load["queues"]) == list(face["queues"])
            assert load["dp_rank"] == rank
            assert load["num_total_tokens"] >= load["num_used_tokens"] >= 0
            assert load["token_usage"] == round(load["num_used_tokens"] / load["max_total_num_tokens"], 4)
    last = pages[-1]["loads"]
    assert [load["num_used_tokens"] for load in last] == table.load("used")[-1].tolist()
    assert pages[0]["loads"][0]["decode_moments"] is None
    n, b, t, bb, _, g = last[0]["decode_moments"]
    assert b == g
    assert bb * n >= b * b
    assert 0.02 < t / n / 1e6 < 0.1
    assert last[0]["gen_throughput"] == pytest.approx(b / t * 1e6, rel=0.5)


def test_the_metrics_page_is_the_faces(simulated):
    """Each family has the face's name, type and labels, each series is one that SGLang's own page of 8 ranks has too."""
    path, _ = simulated
    page = bodies(path, Source.SGLANG_METRICS)[-1]
    known = {specs.PREFIX + f.name: f for f in (*specs.SCHEDULER, *specs.TOKENIZER, specs.BALANCEDNESS, specs.dispatched(8))}
    captured = {
        (sample.name, frozenset((k, v) for k, v in sample.labels.items() if k not in {"model_name", "layer", "pid"}))
        for family in text_string_to_metric_families((CAPTURED / "tp8-dp8-ep8-t1.prom").read_text())
        for sample in family.samples
    }
    shown = set()
    for name, kind in re.findall(r"^# TYPE (\S+) (\S+)$", page, re.MULTILINE):
        assert known[name].kind == kind
        shown.add(name)
    assert len(shown) == len(re.findall("^# TYPE", page, re.MULTILINE))
    for family in text_string_to_metric_families(page):
        for sample in family.samples:
            labels_ = frozenset((k, v) for k, v in sample.labels.items() if k not in {"model_name", "layer"})
            stage_or_mode = {"category", "mode", "forward_mode", "forward_overlap"} & set(sample.labels)
            assert (sample.name, labels_) in captured or stage_or_mode, sample
    assert {f"sglang:{name}" for name in ("eplb_balancedness", "eplb_gpu_physical_count", "realtime_tokens_total")} <= shown


@given(st.lists(st.floats(0, 1e22) | st.floats(0, 2e-4) | st.integers(0, 10**17).map(float), min_size=1, max_size=40))
def test_numbers_are_written_as_prometheus_client_writes_them(numbers):
    """As Python does, with an exponent below 1e-4 and from 1e16 on; the same in the body and in its quoted form."""
    config = ClusterConfig(ranks=2)
    shown = columns(config)
    values = np.ones(len(shown))  # so that every series is there
    values[: len(numbers)] = numbers  # of families that are there at zero, too
    page = MetricsPage(config, shown)
    body = page.render(values)
    written = [line.rpartition(" ")[2] for line in body.splitlines() if not line.startswith("#")]
    assert written[: len(numbers)] == [repr(number) for number in numbers]
    assert json.loads(page.quoted(values)) == body


def test_event_counters_are_absent_until_something_happened(simulated):
    """The first page, before any step, has the counters that exist from the start and none of those that an event makes."""
    path, _ = simulated
    first, *_, last = bodies(path, Source.SGLANG_METRICS)
    for name in ("cuda_graph_passes_total", "realtime_tokens_total", "eplb_balancedness_count"):
        assert f"\nsglang:{name}{{" not in first
        assert f"\nsglang:{name}{{" in last
    assert 'dp_attention_steps_total{dp_rank="7",' in first
    assert "num_retracted" not in last


def test_histograms_are_cumulative_and_complete(simulated):
    """Buckets never fall, the last one is the count, and the waits' count is the steps."""
    path, _ = simulated
    samples: dict[tuple[str, str], list[float]] = {}
    for family in text_string_to_metric_families(bodies(path, Source.SGLANG_METRICS)[-1]):
        for sample in family.samples:
            key = sample.name, sample.labels.get("dp_rank", "") + sample.labels.get("layer", "")
            samples.setdefault(key, []).append(sample.value)
    for (name, rank), values in samples.items():
        if name.endswith("_bucket"):
            assert values == sorted(values)
            assert values[-1] == samples[name.removesuffix("_bucket") + "_count", rank][0]
    assert samples["sglang:dp_attention_sync_wait_seconds_count", "3"] == [sum(samples["sglang:dp_attention_steps_total", "3"])]
    assert samples["sglang:dp_attention_token_imbalance_ratio_count", "1"] == [0.0]


def test_the_same_simulation_makes_the_same_file(tmp_path):
    """Byte for byte; an existing file is never written over."""
    for name in "ab":
        with Recording(tmp_path / name) as recording:
            simulate(ClusterConfig(ranks=4), [], 12.0, recording, seed=5)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    assert json.loads(gzip.decompress((tmp_path / "a").read_bytes()).splitlines()[0])["format"] == "slowrank.capture/1"
    with pytest.raises(FileExistsError):
        Recording(tmp_path / "a")


def test_the_command_writes_a_file_that_diagnose_reads(tmp_path):
    """`slowrank workload simulate` with a fault; what was injected stands in a file of its own only."""
    out, truth = tmp_path / "out.capture", tmp_path / "truth"
    args = ["workload", "simulate", "--for", "40s", "--seed", "4", "--fault", "slow_rank:rank=5,onset=10", "-o", str(out)]
    result = CliRunner().invoke(app, [*args, "--labels", str(truth)])
    assert result.exit_code == 0, result.output
    assert "48 pages of 8 ranks over 40 s of simulated time" in result.output
    assert [(label.fault, label.rank) for label in labels.read(truth)] == [("slow_rank", 5)]
    assert b"slow_rank" not in gzip.decompress(out.read_bytes())
    found = CliRunner().invoke(app, ["diagnose", str(out), "--for", "20s"])
    assert found.exit_code == 1
    assert "slow_rank on rank 5" in found.output


def test_the_cards_pages_tell_a_hot_card_and_change_nothing_else(tmp_path):
    """A page every five seconds, cool before the onset and hot after it; the engine's own pages are those of a recording without cards."""
    schedule = [Scheduled("gpu_throttled", 1, 8.0, 12.0, 1.0)]
    for name in ("with", "without"):
        with Recording(tmp_path / name) as recording:
            simulate(ClusterConfig(ranks=2), schedule, 20.0, recording, cards=recording.cards if name == "with" else None)
    pages = bodies(tmp_path / "with", Source.DCGM)
    clocks = [re.findall(r'DCGM_FI_DEV_SM_CLOCK\{gpu="(\d)".* (\d+)\n', page) for page in pages]
    assert [dict(found)["1"] for found in clocks[1:]] == ["1980", "594", "594"]
    assert {dict(found)["0"] for found in clocks[1:]} == {"1980"}
    for source in (Source.SGLANG_LOADS, Source.SGLANG_METRICS):
        assert bodies(tmp_path / "with", source) == bodies(tmp_path / "without", source)


@pytest.mark.parametrize(
    ("slowdown", "fault"),
    [
        (1.0, "gpu_throttled:rank=1,onset=20"),
        (100.0, "gpu_throttled:rank=1,onset=20"),  # steps of four seconds, longer than from one scrape to the next
        (1.0, "stuck_rank:rank=1,onset=20,duration=33"),
        (1.0, "stuck_rank:rank=1,onset=20"),
    ],
)
def test_a_capture_is_in_the_order_of_time(tmp_path, slowdown, fault):
    """A page of the cards stands behind all pages before its time and before all later ones, however long steps take and pages stand still;
    of one moment the loads come first, then the metrics, then the cards."""
    with Recording(tmp_path / "capture") as recording:
        simulate(ClusterConfig(ranks=4, slowdown=slowdown), [parse(fault)], 90.0, recording, cards=recording.cards)
    lines = [json.loads(line) for line in gzip.decompress((tmp_path / "capture").read_bytes()).splitlines()[1:]]
    expected = []
    for second in range(90):
        kinds = ["sglang-loads", "sglang-metrics", "dcgm"] if second % 5 == 0 else ["sglang-loads"]
        expected += [(START + second, kind) for kind in kinds]
    assert [(line["arrived"], line["source"]) for line in lines] == expected


def recorded(path: Path, flags: EngineFlags, fault: str) -> list[list[dict[str, Any]]]:
    """Each rank's entry of each `/v1/loads` of half a minute of 4 ranks with the fault from second 10 on."""
    with Recording(path) as recording:
        simulate(ClusterConfig(ranks=4, seed=9, engine=flags), [parse(f"{fault},onset=10")], 30.0, recording)
    return [json.loads(body)["loads"] for body in bodies(path, Source.SGLANG_LOADS)]


def test_a_speculating_engine_says_how_many_drafts_are_accepted(tmp_path):
    """In a section that is absent until something was verified, between the memory and the hand-over, as the face has it."""
    pages = recorded(tmp_path / "spec", EngineFlags(speculation=Speculation()), "speculation_skew:rank=2")
    assert all("speculative" not in load for load in pages[0])
    names = list(pages[-1][2])
    assert names[names.index("memory") + 1] == "speculative"
    assert names[names.index("memory") + 2] == "disaggregation"
    lengths = [load["speculative"]["accept_length"] for load in pages[-1]]
    rates = [load["speculative"]["accept_rate"] for load in pages[-1]]
    assert lengths.index(min(lengths)) == rates.index(min(rates)) == 2
    assert [lengths[r] for r in (0, 1, 3)] == pytest.approx([2.533] * 3, abs=0.15)  # since the start
    assert rates[2] == pytest.approx(0.0752 / 3, abs=0.02)  # of the last 40 decodes: all of them under the fault


@pytest.mark.parametrize(("role", "queue"), [("decode", "decode_transfer_queue_reqs"), ("prefill", "prefill_inflight_queue_reqs")])
def test_a_split_engine_shows_its_queues(role, queue, tmp_path):
    """Requests whose KV is on its way pile up where the link is slow, and count as waiting; the mode is on every rank's entry, and its
    fields are the face's. The prefill side says how fast its link is, the receiving side does not know."""
    pages = recorded(tmp_path / role, EngineFlags(split=Split(role)), "pd_queue_skew:rank=1")
    snapshot = LoadSnapshot(memory=MemorySection(1.0, 1.0, 1.0, 5), disaggregation=DisaggregationSection(), queues=QueuesSection())
    face = msgspec.json.decode(msgspec.json.encode(as_object(snapshot, parse_include(None))))
    for load in pages[-1]:
        assert list(load) == list(face)
        assert list(load["disaggregation"]) == list(face["disaggregation"])
        assert load["disaggregation"]["mode"] == role
        assert load["num_active_tokens"] <= load["num_total_tokens"]
    queued = [load["disaggregation"][queue] for load in pages[-1]]
    assert queued[1] >= 2 + max(queued[r] for r in (0, 2, 3))
    if role == "decode":
        assert pages[-1][1]["num_waiting_reqs"] >= queued[1]
    speeds = [load["disaggregation"]["kv_transfer_speed_gb_s"] for load in pages[-1]]
    if role == "prefill":
        assert speeds[1] < 0.01 * min(speeds[r] for r in (0, 2, 3))
    else:
        assert speeds == [0.0] * 4


def test_a_rank_that_never_took_a_step_shows_its_first_snapshot():
    """Stuck from the start: every page is there, and says what was true before the first step."""
    table = Table()
    simulate(ClusterConfig(seed=2), [Scheduled("stuck_rank", rank=2, onset=0.0)], 12.0, table)
    assert len(table.loads_times) == 12
    assert not table.load("running").any()
    assert not table.moments().any()
    assert len(table.metrics_times) == 3
    assert not table.counter('dp_attention_tokens_total{kind="scheduled"}').any()


def test_a_capture_of_a_cluster_that_never_took_a_step_is_read(tmp_path):
    """Its pages are whole: eight ranks each, none with requests, none with decodes to tell of."""
    with Recording(tmp_path / "stuck") as recording:
        simulate(ClusterConfig(seed=2), [Scheduled("stuck_rank", rank=2, onset=0.0)], 3.0, recording)
    lines = gzip.decompress((tmp_path / "stuck").read_bytes()).splitlines()
    pages = [json.loads(line) for line in lines[1:]]
    loads = [json.loads(page["text"])["loads"] for page in pages if page["source"] == "sglang-loads"]
    assert [len(ranks) for ranks in loads] == [8, 8, 8]
    assert {(rank["num_running_reqs"], rank["decode_moments"]) for ranks in loads for rank in ranks} == {(0, None)}
