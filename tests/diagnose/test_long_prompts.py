"""Traffic in which every rank computes prompts much of the time: what the rules hold it against. Windows by arithmetic."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from collector import signals
from diagnose import graphs, lockstep
from diagnose.engine import diagnose
from diagnose.model import Class, Finding, Healthy

EVENLY = dict.fromkeys(range(8), 0.3)


def having(window, **values):
    """The window with every rank's signal at one value, or at (T,) values."""
    shape = (len(window.ranks), len(window.edges) - 1)
    return replace(window, values={**window.values, **{name: np.broadcast_to(value, shape).copy() for name, value in values.items()}})


def outcome(window, past, rule):
    return {o.rule: o.outcome for o in diagnose(window, past).outcomes}[rule]


def test_the_active_step_spreads_the_time_with_requests_over_all_steps(plant):
    """20 steps a second while requests are there in half of the snapshots: half a second over 20 steps."""
    half = np.arange(12) % 2
    window = having(
        plant().window(), running_requests=half, waiting_requests=0.0, decode_time=0.3, prefill_busy=0.0, steps_active=20.0, steps_idle=0.0
    )
    assert lockstep.active_step(window) == pytest.approx(0.5 / 20.0)
    timed = having(window, decode_time=0.6, prefill_busy=0.2)  # no less than one rank's own steps last
    assert lockstep.active_step(timed) == pytest.approx(0.8 / 20.0)


def test_independent_prefills_touch_fewer_steps_than_their_sum(plant):
    """Eight ranks that each prefill in a tenth of the steps touch 1 - 0.9^8 of them, at most 0.8."""
    window = having(plant().window(), steps_active=10.0, steps_idle=0.0, graph_steps=9.0, eager_steps=0.0)
    assert graphs.prefill_expected(window) == pytest.approx(1.0 - 0.9**8)
    assert graphs.prefill_touched(window) == pytest.approx(0.8)


def test_one_rank_among_ranks_that_all_prefill_is_held_against_the_past(plant):
    """Seven tenths against the peers' three is 2.3 times as much, and new where the past was even; where it was not, it is as ever."""
    sick = plant(prefill={**EVENLY, 2: 0.7}, prompts={2: 40_000.0}).window()
    said = outcome(sick, plant(prefill={**EVENLY, 5: 0.34}, seconds=30).window(), "long_prefill")
    assert isinstance(said, Finding)
    assert said.ranks == (2,)
    assert isinstance(outcome(sick, plant(prefill={**EVENLY, 5: 0.7}, seconds=30).window(), "long_prefill"), Healthy)
    assert isinstance(outcome(sick, None, "long_prefill"), Healthy)


def test_a_loss_that_the_healthy_past_had_too_is_healthy(plant):
    """A rank that prefills for 3 of 12 seconds costs a seventh of the step time and is no deal: new, it leaves the cause open."""

    def at_first(seconds):
        window = plant(prefill={2: 0.25}, seconds=seconds).window()
        busy = window.values[signals.PREFILL_BUSY].copy()
        busy[2] = np.where(np.arange(seconds) < 3, 1.0, 0.0)
        return replace(window, values={**window.values, signals.PREFILL_BUSY: busy})

    assert diagnose(at_first(12), plant(seconds=30).window()).verdict.klass is Class.INSUFFICIENT
    assert diagnose(at_first(12), at_first(12)).verdict.klass is Class.HEALTHY


def test_a_late_host_comes_before_a_slow_group(plant):
    """Steps grow from 37 to 64 ms as one host is 60 ms late; a device timer that shows a twentieth of it leaves no slow group beside."""
    sick = having(plant(delay={5: 0.060}).window(), forward_time=0.94)
    verdict = diagnose(sick, plant(seconds=30).window()).verdict
    assert (verdict.cause, verdict.ranks) == ("host_cpu_starved", (5,))
    assert "whole_group_slow" not in {other.cause for other in verdict.also}
