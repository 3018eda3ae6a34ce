"""A cluster in virtual time obeys the physics of the real one."""

from __future__ import annotations

import gc
import math

import numpy as np
import pytest

from tests.workload.played import Window, exactly, play
from workload.config import ClusterConfig, EngineFlags, Lengths, OpenLoop, Traffic
from workload.schedule import Scheduled
from workload.scheduling.settings import Speculation
from workload.virtual_time.control import VirtualControl
from workload.virtual_time.engine import Engine
from workload.virtual_time.simulate import simulate
from workload.virtual_time.table import Table
from workload.wire import Pin


def reference(control: VirtualControl) -> None:
    """8 ranks with 4 requests each, contexts of 8K, one of 200K on rank 0."""
    for rank in range(8):
        control.pin(Pin(f"long{rank}", rank, 1, exactly(204_800 if rank == 0 else 8_192), exactly(1), exactly(5000)))
        control.pin(Pin(f"short{rank}", rank, 3, exactly(8_192), exactly(1), exactly(5000)))


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
def test_a_quiet_step_is_the_step_that_it_would_be(faults, monkeypatch):
    """Whether loops in which nothing happens are counted in short or worked off like any other makes no difference to any number."""
    stretches = []
    coast = Engine._coast

    def counted(self: Engine, until: float) -> None:
        stretches.append(until)
        coast(self, until)

    monkeypatch.setattr(Engine, "_coast", counted)
    short = play(*faults, seconds=20.0)
    assert stretches
    monkeypatch.setattr(Engine, "_quiet", lambda self: False)
    stretches.clear()
    whole = play(*faults, seconds=20.0)
    assert stretches == []
    assert (np.array(short._metrics) == np.array(whole._metrics)).all()
    assert short._loads == whole._loads


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
