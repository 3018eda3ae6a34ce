"""Every fault has its own effect in virtual time, beside the same cluster without one."""

from __future__ import annotations

import numpy as np
import pytest

from tests.workload.played import Window, play
from workload import labels
from workload.config import ClusterConfig
from workload.virtual_time.recording import START


@pytest.fixture(scope="module")
def healthy() -> Window:
    return Window(play(), 30.0, 59.0)


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


def test_kept_answers_lengthen_the_time_to_the_first_token_by_as_much(healthy):
    """A healthy request waits a few steps, one whose answers are kept for a second waits that second more; the ranks are as before."""
    kept = Window(play("outside_the_ranks:onset=20,severity=1.0"), 30.0, 59.0)

    def first(window: Window) -> float:
        total, count = (window.grown(f'time_to_first_token_seconds_{part}{{is_streaming="true"}}') for part in ("sum", "count"))
        return float(total[0] / count[0])

    assert healthy.cadence < first(healthy) < 4 * healthy.cadence
    assert first(kept) - first(healthy) == pytest.approx(1.0, abs=0.02)
    assert kept.cadence == pytest.approx(healthy.cadence, rel=0.05)
