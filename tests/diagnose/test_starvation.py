"""Why a process is late without working: the kernel's word as sub-cause, and as the only witness where waits name nobody."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from collector import signals
from diagnose.engine import diagnose
from diagnose.model import Class

LATE = {"delay": {5: 0.060}, "processes": True}


@pytest.mark.parametrize(
    ("kernel", "words", "signal"),
    [
        ({"queued": {5: 0.6}}, "has its CPU taken by something else", signals.RUN_QUEUE_DELAY),
        ({"quota": {5: 0.3}}, "is throttled by its cgroup's CPU quota", signals.CGROUP_THROTTLED),
        ({"stopped": (5,)}, "is stopped by a signal", signals.PROCESS_STOPPED),
    ],
    ids=["stolen", "quota", "stopped"],
)
def test_a_late_rank_gets_its_sub_cause(kernel, words, signal, plant):
    """The same rank and rule as without the kernel's word, with the reason and its number."""
    verdict = diagnose(plant(**LATE, **kernel).window(), plant(processes=True).window()).verdict
    assert (verdict.cause, verdict.ranks) == ("host_cpu_starved", (5,))
    assert words in verdict.summary
    assert any(e.signal == signal and e.rank == 5 for e in verdict.evidence)


def test_a_late_rank_that_the_kernel_runs_is_late_for_another_reason(plant):
    """Nothing of the kernel's stands out: the report says that it was asked, and what would tell."""
    verdict = diagnose(plant(**LATE).window(), plant(processes=True).window()).verdict
    assert verdict.cause == "host_cpu_starved"
    assert "the kernel says" in verdict.would_tell


def test_level_waits_and_a_starved_process_name_the_rank(plant):
    """A process woken late from its own wait waits as long as its peers do: the run queue names it, and the rise is the price."""
    now, past = plant(group=1.6, processes=True, queued={2: 0.87}), plant(processes=True)
    verdict = diagnose(now.window(), past.window()).verdict
    assert (verdict.klass, verdict.cause, verdict.ranks) == (Class.SINGLE_POINT, "host_cpu_starved", (2,))
    assert verdict.share is not None
    assert verdict.share.mid == pytest.approx(1.0 - past.step_time / now.step_time, rel=0.2)
    assert verdict.share.high == pytest.approx(0.87, abs=0.03)


@pytest.mark.parametrize("late", [(0, 2), (0, 1)])
def test_waits_that_point_elsewhere_do_not_blame_who_is_not_held(late, plant):
    """Rank 1 is held at a quota for 0.8 s a second and wakes late from its own waits, so the waits look as if others were late too, seen
    with the workload. The kernel's word is a fact: rank 1, and nobody else."""
    now = plant(delay=dict.fromkeys(late, 0.060), processes=True, quota={1: 0.8})
    verdict = diagnose(now.window(), plant(processes=True).window()).verdict
    assert (verdict.cause, verdict.ranks) == ("host_cpu_starved", (1,))
    assert "throttled by its cgroup's CPU quota" in verdict.summary


def test_a_little_kept_rank_does_not_excuse_another_that_is_late(plant):
    """Rank 1 waits 0.06 s per second for a CPU, which cannot be what rank 5 costs."""
    now = plant(delay={5: 0.060}, cpu={5: 8.0}, processes=True, queued={1: 0.06})
    verdict = diagnose(now.window(), plant(processes=True).window()).verdict
    assert (verdict.cause, verdict.ranks) == ("slow_rank", (5,))


def test_a_starved_process_that_costs_nothing_is_left_alone(plant):
    """Overlap hides it: steps are as short as ever."""
    window = plant(processes=True, queued={2: 0.3}).window()
    assert diagnose(window, plant(processes=True).window()).verdict.klass is Class.HEALTHY


def test_a_node_on_which_all_wait_alike_names_no_rank(plant):
    """Every process waits for a CPU: no one stands apart from its peers."""
    window = plant(group=1.6, processes=True, queued=dict.fromkeys(range(8), 0.4)).window()
    assert diagnose(window, plant(processes=True).window()).verdict.cause == "whole_group_slow"


def test_the_rank_that_stopped_all_is_named_by_its_state(plant, scenes):
    """Every snapshot stands still, which names nobody; the state of one process does."""
    stuck = scenes["stuck_rank"]
    assert diagnose(stuck.window()).verdict.ranks == ()
    verdict = diagnose(plant(frozen=stuck.frozen, processes=True, stopped=(4,)).window()).verdict
    assert (verdict.cause, verdict.ranks) == ("stuck_rank", (4,))
    assert "state T" in verdict.summary


def test_cpu_time_of_the_kernel_serves_where_the_engine_reports_none(plant):
    """Without the engine's CPU counter the kernel's tells starved from busy."""
    window = plant(**LATE, queued={5: 0.6}).window().without(signals.SCHEDULER_CPU)
    verdict = diagnose(window, plant(processes=True).window()).verdict
    assert verdict.cause == "host_cpu_starved"
    busy = plant(delay={5: 0.060}, cpu={5: 8.0}, processes=True).window().without(signals.SCHEDULER_CPU)
    assert diagnose(busy, plant(processes=True).window()).verdict.cause == "slow_rank"


def test_an_observation_of_one_node_only_compares_its_own_ranks(plant):
    """Processes of ranks on other nodes are unknown, not idle: the starved one is found among those that were seen."""
    window = plant(**LATE, queued={5: 0.6}).window()
    values = dict(window.values)
    for name in (signals.RUN_QUEUE_DELAY, signals.CGROUP_THROTTLED, signals.PROCESS_STOPPED, signals.PROCESS_BLOCKED):
        seen = values[name].copy()
        seen[:4] = np.nan
        values[name] = seen

    assert "CPU taken" in diagnose(replace(window, values=values), plant(processes=True).window()).verdict.summary


def test_a_late_rank_pinned_far_from_its_card_is_told(plant):
    """Its peers run beside their cards, it does not: the reason that is left when nothing keeps it from running."""
    window = plant(**LATE).window()
    far = np.zeros((8, 12))
    far[5] = 1.0
    verdict = diagnose(replace(window, values={**window.values, signals.FAR_FROM_CARD: far}), plant(processes=True).window()).verdict
    assert "far from its card" in verdict.summary
