"""A group that steps for a few requests, and a process whose slowness comes and goes. Windows by arithmetic."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from collector import signals
from diagnose.engine import diagnose
from diagnose.model import Class, Finding, Healthy, NoData, Severity


def outcome(window, past, rule):
    return {o.rule: o.outcome for o in diagnose(window, past).outcomes}[rule]


def idle(plant, busy, requests=2.0, ranks=8):
    """An engine of which the first `busy` ranks have requests."""
    return plant(ranks=ranks, running=tuple(requests if r < busy else 0.0 for r in range(64)))


def test_a_few_requests_burn_the_idle_ranks_steps(plant):
    """Two requests on one of eight ranks: 7/8 of all steps serve nobody; a note that names the rank and pages no one."""
    verdict = diagnose(idle(plant, 1).window(), plant().window()).verdict
    assert (verdict.cause, verdict.ranks, verdict.severity) == ("idle_lockstep", (0,), Severity.NOTE)
    assert verdict.share is not None
    assert verdict.share.mid == pytest.approx(7 / 8)
    assert "no request is slower" in verdict.summary


@pytest.mark.parametrize(("ranks", "busy"), [(8, 7), (8, 4), (2, 1)])
def test_ranks_that_idle_in_no_more_than_half_of_the_steps_are_healthy(ranks, busy, plant):
    """A drained rank of eight, or of two, or half of them without work: the requests do not fit on so much less."""
    window = idle(plant, busy, ranks=ranks).window()
    assert isinstance(outcome(window, None, "idle_lockstep"), Healthy)


def test_steps_without_any_request_are_nobodys(plant):
    """All ranks idle in all steps, as on a prefill server between prompts: there is no request to move elsewhere."""
    assert isinstance(outcome(idle(plant, 0).window(), None, "idle_lockstep"), Healthy)
    assert isinstance(outcome(replace(idle(plant, 1), role="prefill").window(), None, "idle_lockstep"), Healthy)


def test_many_requests_on_one_rank_are_a_matter_of_dealing(plant):
    """Forty requests on one rank of eight while seven idle: idle steps, but not for lack of requests."""
    said = outcome(idle(plant, 1, 40.0).window(), plant().window(), "idle_lockstep")
    assert isinstance(said, Healthy)
    assert "dealt" in said.why


def test_a_group_that_stands_still_between_requests_burns_nothing(plant):
    """Steps in a tenth of the time: the cards are free in the rest."""
    window = idle(plant, 1).window()
    rates = (signals.STEPS_ACTIVE, signals.STEPS_IDLE, signals.DECODE_STEPS, signals.DECODE_TIME)
    rare = replace(window, values={n: v * 0.1 if n in rates else v for n, v in window.values.items()})
    said = outcome(rare, None, "idle_lockstep")
    assert isinstance(said, Healthy)
    assert "stands still" in said.why


@pytest.mark.parametrize("signal", [signals.STEPS_ACTIVE, signals.STEPS_IDLE, signals.RUNNING])
def test_without_idle_steps_or_counts_nothing_is_said(signal, plant):
    """Which ranks step for nothing must have been counted."""
    assert isinstance(outcome(idle(plant, 1).window().without(signal), None, "idle_lockstep"), NoData)


def test_a_note_never_stands_before_a_cause_that_costs_time(plant):
    """Seven idle ranks of eight burn 7/8 of the cards' time, but the late host is what someone must repair: it comes first."""
    sick = replace(idle(plant, 1), delay={5: 0.060}).window()
    verdict = diagnose(sick, idle(plant, 1).window()).verdict
    assert verdict.klass is Class.SINGLE_POINT
    assert [v.cause for v in verdict.also] == ["idle_lockstep"]


def test_a_steady_cost_is_a_slow_rank_and_one_that_comes_and_goes_a_slow_process(scenes):
    """The same rank, lateness and CPU: only the course in time tells the two, and exactly one rule speaks."""
    past = scenes["healthy"].window()
    for cause, other in (("slow_rank", "slow_process"), ("slow_process", "slow_rank")):
        window = scenes[cause].window()
        assert isinstance(outcome(window, past, cause), Finding)
        assert isinstance(outcome(window, past, other), Healthy)


def test_the_two_lengths_of_lateness_are_reported(scenes):
    """60 ms in two of three seconds and three tenths of it in the third."""
    verdict = diagnose(scenes["slow_process"].window(), scenes["healthy"].window()).verdict
    (course,) = [e for e in verdict.evidence if e.signal == "lateness"]
    assert course.expected == pytest.approx(0.060, rel=0.05)
    assert course.observed == pytest.approx(0.018, rel=0.15)


def test_a_steady_cost_that_begins_in_the_window_is_a_slow_rank(plant):
    """Three seconds of health, then late in every step: one change is an onset, not a mode that comes and goes."""
    calm, late = plant(delay={}, cpu={3: 8.0}).window(), plant(delay={3: 0.060}, cpu={3: 8.0}).window()
    begun = {name: np.where(np.arange(values.shape[1]) < 3, calm.values[name], values) for name, values in late.values.items()}
    verdict = diagnose(replace(late, values=begun), calm).verdict
    assert (verdict.cause, verdict.ranks) == ("slow_rank", (3,))


def test_a_starved_process_that_comes_and_goes_is_not_a_slow_process(scenes):
    """Without more CPU it is not being run, however its lateness goes."""
    starved = replace(scenes["slow_process"], cpu={}).window()
    verdict = diagnose(starved, scenes["healthy"].window()).verdict
    assert verdict.cause == "host_cpu_starved"


def test_without_cpu_time_a_mode_is_left_to_slow_rank(scenes):
    """The rank and the class stay; what kind of slowness it is needs the CPU time."""
    window, past = scenes["slow_process"].window(), scenes["healthy"].window()
    cpu = signals.SCHEDULER_CPU
    assert isinstance(outcome(window.without(cpu), past, "slow_process"), NoData)
    verdict = diagnose(window.without(cpu), past.without(cpu)).verdict
    assert (verdict.cause, verdict.ranks) == ("slow_rank", (3,))
