"""A cluster in virtual time obeys the physics of the real one, and every fault has its own effect."""

from __future__ import annotations

import gc
import math
from dataclasses import dataclass

import numpy as np
import pytest

from workload import labels
from workload.config import ClusterConfig, EngineFlags, Lengths, OpenLoop, Traffic
from workload.schedule import Scheduled, parse
from workload.scheduler import Batch
from workload.scheduling.settings import Speculation
from workload.virtual_time.control import VirtualControl
from workload.virtual_time.lane import Lane
from workload.virtual_time.recording import START
from workload.virtual_time.simulate import simulate
from workload.virtual_time.table import Table
from workload.wire import Pin


@dataclass
class Window:
    """Per step of the group, between two scrapes. Lists have one value per rank, times are seconds."""

    table: Table
    first: float
    last: float

    def grown(self, name: str) -> np.ndarray:
        values, times = self.table.counter(name), self.table.metrics_times
        low, high = np.searchsorted(times, [self.first, self.last])
        return np.asarray(values[high] - values[low])

    @property
    def steps(self) -> float:
        return float(
            self.grown('dp_attention_steps_total{rank_state="active"}')[0] + self.grown('dp_attention_steps_total{rank_state="idle"}')[0]
        )

    @property
    def cadence(self) -> float:
        return (self.last - self.first) / self.steps

    @property
    def exchange(self) -> np.ndarray:
        return self.grown("dp_attention_sync_wait_seconds_sum") / self.steps

    @property
    def waits(self) -> np.ndarray:
        return self.exchange + self.grown('scheduler_stage_seconds_total{category="recv_requests",forward_overlap="none"}') / self.steps

    @property
    def pairs(self) -> np.ndarray:
        return self.grown('dp_attention_pairs_total{kind="scheduled"}') / self.steps

    @property
    def cpu(self) -> np.ndarray:
        return self.grown("scheduler_process_cpu_seconds_total") / self.steps

    @property
    def balancedness(self) -> float:
        parts = [self.grown(f'eplb_balancedness_{part}{{forward_mode="decode"}}')[0] for part in ("sum", "count")]
        return float(parts[0] / parts[1])


def play(*faults: str, seconds: float = 60.0, config: ClusterConfig | None = None, prepare=lambda _: None) -> Table:
    table = Table()
    simulate(config or ClusterConfig(seed=3), [parse(text) for text in faults], seconds, table, metrics_every=1.0, prepare=prepare)
    return table


def exactly(tokens: int) -> Lengths:
    return Lengths(tokens, 0, tokens, tokens)


def reference(control: VirtualControl) -> None:
    """8 ranks with 4 requests each, contexts of 8K, one of 200K on rank 0."""
    for rank in range(8):
        control.pin(Pin(f"long{rank}", rank, 1, exactly(204_800 if rank == 0 else 8_192), exactly(1), exactly(5000)))
        control.pin(Pin(f"short{rank}", rank, 3, exactly(8_192), exactly(1), exactly(5000)))


@pytest.fixture(scope="module")
def healthy() -> Window:
    return Window(play(), 30.0, 59.0)


def test_the_reference_load_makes_the_reference_numbers():
    """Rank 0 reads 229,376 pairs in the first decode step and its peers 32,768, and they fall short by 196,608 in every step."""
    table = play(config=ClusterConfig(traffic=None), prepare=reference, seconds=12.0)
    window = Window(table, 2.0, 11.0)
    assert window.grown('dp_attention_pairs_total{kind="imbalance"}').tolist() == [0.0] + [196_608 * window.steps] * 7
    # the step before the first: 4 prompts of which one token is computed; then each of 4 contexts grows by one a step
    scheduled, steps = (
        table.counter('dp_attention_pairs_total{kind="scheduled"}'),
        table.counter('dp_attention_steps_total{rank_state="active"}'),
    )
    n = steps[-1, 0] - 1
    assert steps[-1].tolist() == [n + 1] * 8
    grown = 4 * n * (n + 1) / 2  # the first decode attends to the prompt and the token that the prefill made
    prefill = [204_800 + 3 * 8_192] + [4 * 8_192] * 7  # pairs of one token with all before it and itself
    assert scheduled[-1].tolist() == [p + n * p + grown for p in prefill]
    assert [229_376, *[32_768] * 7] == prefill
    assert (table.load("running")[-1] == 4).all()


def test_healthy_ranks_wait_little_and_the_card_sets_the_pace(healthy):
    """Ranks wait about a millisecond a step for each other, hidden behind the step; forwards fill the time; experts are fairly level."""
    assert 0.0005 < healthy.waits.min() < healthy.waits.max() < 0.003
    forward = sum(healthy.grown(f'forward_execution_seconds_total{{category="{kind}"}}') for kind in ("decode", "extend", "idle"))
    assert forward / 29.0 == pytest.approx(1.0, abs=0.02)
    stages = sum(
        healthy.grown(f'scheduler_stage_seconds_total{{category="{stage}",forward_overlap="none"}}')
        for stage in ("recv_requests", "process_input_requests", "get_next_batch_to_run", "run_batch", "process_batch_result", "other")
    )
    assert stages / 29.0 == pytest.approx(1.0, abs=0.06)  # a flush may lie up to a second and a step before either scrape
    assert 0.75 < healthy.balancedness < 0.92
    assert healthy.pairs.max() / healthy.pairs.min() < 2.5


def test_hidden_lateness_costs_nothing_and_shows_in_the_waits(healthy):
    """10 ms more work in each pass of rank 5 fit into a step of the card: peers wait, and not one step is lost."""
    late = Window(play("slow_rank:rank=5,severity=0.2"), 30.0, 59.0)
    assert late.steps == pytest.approx(healthy.steps, abs=2)
    assert np.argmin(late.waits) == 5
    assert np.delete(late.waits, 5).min() - late.waits[5] > 0.008
    assert late.cpu[5] - healthy.cpu[5] == pytest.approx(0.010, rel=0.1)


def test_lateness_that_is_longer_than_a_step_sets_the_pace():
    """60 ms of work in each pass: the cadence is those and the host's own 2 ms or so, whatever the card could."""
    late = Window(play("slow_rank:rank=5,severity=1.2"), 30.0, 59.0)
    assert 0.060 < late.cadence < 0.065
    assert np.argmin(late.waits) == 5


def test_a_starved_process_is_late_and_does_no_more_work(healthy):
    """Stolen CPU makes rank 4's peers wait and steps longer; its CPU per step stays its own."""
    starved = Window(play("host_cpu_starved:rank=4"), 30.0, 59.0)
    assert np.argmin(starved.waits) == 4
    assert starved.cadence > 1.1 * healthy.cadence
    assert starved.cpu[4] == pytest.approx(healthy.cpu[4], rel=0.1)


def test_long_contexts_lengthen_everybodys_step_and_not_the_waits(healthy):
    """Four contexts of 200K on rank 6: its pairs stand out, all steps are longer, nobody waits for a host."""
    skewed = Window(play("context_length_skew:rank=6"), 30.0, 59.0)
    assert np.argmax(skewed.pairs) == 6
    assert skewed.pairs[6] > 5 * np.median(skewed.pairs)
    assert skewed.cadence > 1.1 * healthy.cadence
    assert skewed.waits.max() < 0.003


def test_a_crowd_on_one_rank_is_counted_there():
    """100 requests more on rank 1 run there."""
    table = play("request_count_skew:rank=1")
    assert table.load("running")[40:, 1].mean() > 80
    assert np.delete(table.load("running")[40:].mean(axis=0), 1).max() < 20


def test_long_prompts_are_prefilled_where_they_arrive(healthy):
    """Rank 2 computes many more prompt tokens than its peers, and decodes lose their graph while it does."""
    prefills = Window(play("long_prefill:rank=2"), 30.0, 59.0)
    computed = prefills.grown('realtime_tokens_total{mode="prefill_compute"}')
    assert computed[2] > 10 * np.delete(computed, 2).max()
    assert prefills.cadence > 1.3 * healthy.cadence
    eager, graph = (prefills.grown(f'cuda_graph_passes_total{{mode="decode_{kind}"}}') for kind in ("none", "cuda_graph"))
    assert (eager[[0, 7]] > graph[[0, 7]]).all()


def test_hot_experts_lengthen_the_step_with_level_pairs(healthy):
    """3.5 times its fair share on one of 8 cards is a balancedness of 1 / 3.5."""
    hot = Window(play("expert_hotspot:rank=3"), 30.0, 59.0)
    assert hot.balancedness == pytest.approx(1 / 3.5, rel=0.02)
    assert hot.cadence > 1.1 * healthy.cadence
    load = np.diff([hot.grown(f'eplb_gpu_physical_count_bucket{{layer="10",le="{float(r)!r}"}}')[0] for r in range(8)], prepend=0.0)
    assert load.argmax() == 3
    assert load[3] / load.sum() == pytest.approx(3.5 / 8, rel=0.02)


def test_a_slow_group_takes_its_factor_longer(healthy):
    """A stretch of 1.4 is 1.4 times the cadence, to what a slower engine is asked less, and no rank stands out."""
    slow = Window(play("whole_group_slow"), 30.0, 59.0)
    assert slow.cadence / healthy.cadence == pytest.approx(1.4, rel=0.05)
    assert slow.waits.max() < 0.003


def test_a_throttled_card_slows_everybody(healthy):
    """A card at a lower clock: longer steps, waits of the schedulers as before."""
    slow = Window(play("gpu_throttled:rank=3"), 30.0, 59.0)
    assert slow.cadence > 1.05 * healthy.cadence
    assert slow.waits.max() < 0.003


def test_a_stuck_rank_freezes_all_until_it_goes_on():
    """From 20 s to 40 s nothing is counted or published, and scrapes go on; after that steps are made again."""
    table = play("stuck_rank:rank=3,onset=20,duration=20")
    steps = table.counter('dp_attention_steps_total{rank_state="active"}')[:, 0]
    assert len(steps) == 60
    assert steps[22] == steps[39] > steps[19] - 30
    assert steps[59] > steps[40] + 300
    published = table.load("at")
    assert (published[38] == published[22]).all()
    assert (published[45] > 40).all()


def test_a_fault_that_never_ends_leaves_the_rest_frozen():
    """The clock reaches the end all the same."""
    table = play("stuck_rank:rank=0,onset=5", seconds=20.0)
    assert table.metrics_times.tolist() == list(range(20))
    steps = table.counter('dp_attention_steps_total{rank_state="active"}')[:, 0]
    assert steps[6] == steps[19] > 50


def test_a_fault_ends_in_its_time_and_the_labels_say_when(tmp_path):
    """Labels are in the time of the capture; a fault that lasts to the end is labelled with the end."""
    config = ClusterConfig(seed=3, labels=tmp_path / "truth")
    table = play("slow_rank:rank=2,severity=2,onset=10,duration=10", "expert_hotspot:rank=1,onset=15", config=config, seconds=40.0)
    found = {label.fault: label for label in labels.read(tmp_path / "truth")}
    assert (found["slow_rank"].start - START, found["slow_rank"].end - START, found["slow_rank"].rank) == (10, 20, 2)
    assert (found["expert_hotspot"].start - START, found["expert_hotspot"].end - START) == (15, 40)
    assert Window(table, 11, 19).cadence > 0.1
    assert Window(table, 25, 39).cadence < 0.1


def test_a_rank_beside_busy_peers_runs_idle_batches():
    """Requests on three of four ranks: the fourth is idle in every step, and has no tokens, pairs or decode passes."""

    def three(control: VirtualControl) -> None:
        for rank in range(3):
            control.pin(Pin(f"pin{rank}", rank, 2, exactly(1000), exactly(10), exactly(5000)))

    table = play(config=ClusterConfig(ranks=4, traffic=None), prepare=three, seconds=10.0)
    window = Window(table, 2.0, 9.0)
    assert window.grown('dp_attention_steps_total{rank_state="idle"}').tolist() == [0, 0, 0, window.steps]
    assert window.grown('dp_attention_tokens_total{kind="scheduled"}').tolist() == [2 * window.steps] * 3 + [0]
    assert window.grown('cuda_graph_passes_total{mode="decode_cuda_graph"}').tolist() == [window.steps] * 3 + [0]


def test_an_idle_cluster_counts_idle_seconds_and_publishes_each_second():
    """Nobody asks: no step, nearly all time is idle, and snapshots are at most a second and a loop old."""
    table = play(config=ClusterConfig(ranks=3, traffic=None), seconds=10.0)
    assert not table.counter('dp_attention_steps_total{rank_state="idle"}').any()
    assert table.counter("scheduler_idle_seconds_total")[-1] == pytest.approx(9 * 10 / 12, rel=0.1)  # 10 ms of sleep, 2 of looking
    assert (table.loads_times[:, None] - table.load("at")).max() < 1.05


def test_open_loop_traffic_arrives_at_its_rate():
    """Poisson arrivals of 30 a second, balanced by tokens: 10 output tokens each, one of which comes from the prefill."""
    small = Lengths(200, 0, 200, 200)
    traffic = Traffic(arrivals=OpenLoop(rate=30), prompt=small, fresh=exactly(10), output=exactly(10))
    table = play(config=ClusterConfig(ranks=4, traffic=traffic, method="total_tokens"), seconds=101.0)
    made = Window(table, 0.0, 100.0).grown('realtime_tokens_total{mode="decode"}')
    assert made.sum() / 9 / 100 == pytest.approx(30, rel=4 / math.sqrt(3000))
    assert made.min() > 0


def test_kept_answers_lengthen_the_time_to_the_first_token_by_as_much(healthy):
    """A healthy request waits a few steps, one whose answers are kept for a second waits that second more; the ranks are as before."""
    kept = Window(play("outside_the_ranks:onset=20,severity=1.0"), 30.0, 59.0)

    def first(window: Window) -> float:
        total, count = (window.grown(f'time_to_first_token_seconds_{part}{{is_streaming="true"}}') for part in ("sum", "count"))
        return float(total[0] / count[0])

    assert healthy.cadence < first(healthy) < 4 * healthy.cadence
    assert first(kept) - first(healthy) == pytest.approx(1.0, abs=0.02)
    assert kept.cadence == pytest.approx(healthy.cadence, rel=0.05)


def test_a_stuck_publisher_leaves_an_old_snapshot_while_the_rank_steps():
    """The rank's snapshot stays as old as the start, its peers' do not; its counters move."""
    table = play(seconds=10.0, prepare=lambda control: control.stick_publisher(2, stuck=True))
    assert table.load("at")[-1, 2] < 0.5
    assert np.delete(table.load("at")[-1], 2).min() > 8
    assert table.counter('dp_attention_steps_total{rank_state="active"}')[-1, 2] > 100


def test_the_same_seed_makes_the_same_figures_and_another_one_others():
    first, again, other = (play(seconds=20.0, config=ClusterConfig(seed=seed)) for seed in (1, 1, 2))
    name = "dp_attention_sync_wait_seconds_sum"
    assert (first.counter(name) == again.counter(name)).all()
    assert (first.load("used") == again.load("used")).all()
    assert (first.counter(name)[5:] != other.counter(name)[5:]).all()


def test_speculation_makes_as_many_tokens_as_are_accepted():
    """With every draft accepted a row yields 1 + 3 tokens a step and is counted once; what the card verifies, four tokens a row, shows in
    what is dispatched to experts: 8 copies of each."""
    flags = EngineFlags(speculation=Speculation(steps=3, accept=1.0))

    def two(control: VirtualControl) -> None:
        for rank in range(2):
            control.pin(Pin(f"pin{rank}", rank, 5, exactly(1000), exactly(10), exactly(50_000)))

    table = play(config=ClusterConfig(ranks=2, traffic=None, engine=flags), prepare=two, seconds=20.0)
    window = Window(table, 5.0, 19.0)
    assert window.grown('dp_attention_tokens_total{kind="scheduled"}').tolist() == [5 * window.steps] * 2
    assert window.grown('realtime_tokens_total{mode="decode"}').tolist() == [4 * 5 * window.steps] * 2
    n, b, _, bb, _, g = table.moments()[-1].T
    assert (b == 5 * n).all()
    assert (bb == 25 * n).all()
    assert (g == 20 * n).all()
    assert (table.load("accepted") == 3 * table.load("verified")).all()
    dispatched = window.grown('eplb_gpu_physical_count_count{layer="10"}')[0]
    assert dispatched / (window.steps / 20) == pytest.approx(8 * 2 * 5 * 4, rel=0.1)  # every 20th step is told
    assert not window.grown('forward_execution_seconds_total{category="decode"}').any()
    assert (window.grown('forward_execution_seconds_total{category="target_verify"}') > 13).all()


@pytest.mark.parametrize(
    "faults",
    [
        (),
        ("slow_rank:rank=2,onset=5,duration=5", "kv_pressure:rank=1,onset=8"),
        ("stuck_rank:rank=1,onset=6,duration=3",),
        ("drained_rank:rank=0",),
    ],
)
def test_a_counted_step_is_the_step_that_it_would_be(faults, monkeypatch):
    """Whether steps in which nothing happens are counted on or asked of the schedulers like any other makes no difference to any number."""
    asked = []
    ask = Lane.ask

    def every_step(self: Lane, step: int) -> Batch | None:
        asked.append(step)
        batch = ask(self, step)
        self.due = step + 1
        return batch

    counted = play(*faults, seconds=20.0)
    monkeypatch.setattr(Lane, "ask", every_step)
    whole = play(*faults, seconds=20.0)
    assert len(asked) > 300 * 8  # at least half of the steps of 20 s
    assert (np.array(counted._metrics) == np.array(whole._metrics)).all()
    assert counted._loads == whole._loads


def test_the_collector_is_as_it_was_afterwards():
    """A simulation asks for fewer collections of garbage, and takes that back, even when it is refused half way."""
    before = gc.get_threshold()
    seen = []

    def fail(_: float) -> None:
        seen.append(gc.get_threshold())
        raise RuntimeError("half way")

    with pytest.raises(ExceptionGroup):
        simulate(ClusterConfig(traffic=None), [], 200.0, Table(), progress=fail)
    assert seen[0][0] > before[0]
    assert gc.get_threshold() == before


@pytest.mark.parametrize(
    ("config", "says"),
    [
        (ClusterConfig(device="cpu"), "device 'cpu'"),
        (ClusterConfig(engine=EngineFlags(mixed=True)), "mixed prefill"),
    ],
)
def test_what_virtual_time_cannot_play_is_refused(config, says):
    """By name, with the way out."""
    with pytest.raises(ValueError, match=f"{says}.*real time"):
        play(config=config)


def test_a_fault_that_cannot_be_is_refused_before_the_start():
    """An unknown name with the nearest one."""
    with pytest.raises(ValueError, match="did you mean slow_rank"):
        simulate(ClusterConfig(), [Scheduled("slow_rankk", 1)], 5.0, Table())
