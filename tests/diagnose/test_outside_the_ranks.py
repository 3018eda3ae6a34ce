"""Waiting that no rank accounts for. Windows by arithmetic: a first token takes three steps, and what the front end adds."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from collector import signals
from diagnose import front_end
from diagnose.blind import UNTESTED
from diagnose.case import Case
from diagnose.engine import diagnose
from diagnose.model import Class, Finding, Healthy, NoData, Severity

FRONT_END = (signals.FIRST_TOKEN_TIME, signals.FIRST_TOKENS)


def outcome(window, past=None):
    return {o.rule: o.outcome for o in diagnose(window, past).outcomes}["outside_the_ranks"]


def test_answers_that_are_kept_are_the_front_ends_doing(plant):
    """One second on top of three steps: without a past at most four steps are the ranks', so one second less a step is not; with one,
    three are, as they were."""
    sick = plant(kept=1.0)
    for past, away in ((None, 1.0 - sick.step_time), (plant().window(), 1.0)):
        verdict = diagnose(sick.window(), past).verdict
        assert (verdict.klass, verdict.cause, verdict.ranks, verdict.severity) == (Class.OUTSIDE, "outside_the_ranks", (), Severity.TICKET)
        (seen,) = verdict.evidence
        assert seen.expected is not None
        assert seen.observed - seen.expected == pytest.approx(away, rel=0.02)


def test_steps_that_grow_are_waited_for_no_longer_than_they_grow(plant):
    """A first token takes three steps; steps twice as long make it wait for twice as long, and nothing of that is the front end's."""
    assert not isinstance(outcome(plant(group=2.5).window(), plant().window()), Finding)


def test_a_few_first_tokens_are_compared_with_no_past(plant):
    """Eleven are too few to hold against a past, so the four steps that they can take are taken off."""
    found = Case(plant(kept=1.0, seconds=12).window(), plant().window())
    assert found.first_tokens is not None
    assert found.first_tokens.beyond(found.first_tokens_before) > found.first_tokens.outside
    few = replace(found.first_tokens, count=front_end.ENOUGH - 1)
    assert few.beyond(found.first_tokens_before) == few.outside


def test_the_share_is_of_requests_time_and_no_lost_step_time(plant):
    """8 requests a second that wait 1 s outside are 8, beside 64 on the ranks: about a ninth of their time, and no step is longer."""
    verdict = diagnose(plant(kept=1.0).window(), plant().window()).verdict
    assert verdict.share is not None
    assert verdict.share.mid == pytest.approx(8 / 72, rel=0.06)
    assert "outside_the_ranks" not in verdict.lost_time.by_cause
    assert verdict.lost_time.share is not None
    assert verdict.lost_time.share < 0.05


def test_requests_that_queue_on_the_ranks_wait_inside(plant):
    """Eight waiting requests at eight first tokens a second are a second of queue each: the ranks account for it."""
    window = plant(kept=1.0).window()
    queued = replace(window, values={**window.values, signals.WAITING: np.ones_like(window.values[signals.WAITING])})
    assert isinstance(outcome(queued), Healthy)


def test_while_requests_queue_on_the_ranks_nothing_points_outside(plant):
    """A fifth of a wait of 20 s is queue now; the rest may have been queue before: a draining queue hides what else there is."""
    window = plant(kept=20.0).window()
    queued = replace(window, values={**window.values, signals.WAITING: np.full_like(window.values[signals.WAITING], 4.0)})
    said = outcome(queued)
    assert isinstance(said, Healthy)
    assert "shrinks" in said.why


def test_a_queue_that_has_drained_is_not_blamed_on_the_front_end(plant):
    """First tokens that come late in one part of the window only, from a queue that is gone: not a front end that keeps answers."""
    window = plant().window()
    late = window.values[signals.FIRST_TOKEN_TIME].copy()
    late[:, :3] += 8 * 20.0
    assert isinstance(outcome(replace(window, values={**window.values, signals.FIRST_TOKEN_TIME: late})), Healthy)


@pytest.mark.parametrize(("prefill", "cause"), [({}, "outside_the_ranks"), ({2: 0.3}, None)], ids=["level", "one rank prefills"])
def test_at_rare_looks_a_queue_may_come_and_go_unseen(plant, prefill, cause):
    """Looks 15 s apart miss a queue that is computed within seconds; where one rank prefills more than its peers it may have had one."""
    seen = plant(kept=3.0, seconds=60, prefill=prefill).window()
    rare = replace(
        seen, edges=seen.edges[::15], values={name: found.reshape(len(found), 4, 15).mean(axis=2) for name, found in seen.values.items()}
    )
    often, seldom = outcome(seen), outcome(rare)
    assert isinstance(often, Finding)
    assert isinstance(seldom, Finding if cause else NoData)


def test_a_client_that_sends_little_is_no_finding(plant):
    """Few requests, quick answers: idle ranks alone do not point outside."""
    few = plant(running=(1.0,) * 64).window()
    assert isinstance(outcome(few), Healthy)


def test_long_prompts_on_the_ranks_are_not_outside(scenes):
    """First tokens that take three long steps are the ranks' own."""
    for cause in ("long_prefill", "prefill_drags_decode", "context_length_skew", "whole_group_slow"):
        assert isinstance(outcome(scenes[cause].window(), scenes["healthy"].window()), Healthy), cause


def test_without_first_tokens_in_the_window_nothing_is_said(plant):
    """Counters that stand still are neither long nor short waits, and absent ones are named."""
    window = plant().window()
    none = {name: np.zeros((1, 12)) for name in (signals.FIRST_TOKEN_TIME, signals.FIRST_TOKENS)}
    said = outcome(replace(window, values={**window.values, **none}))
    assert isinstance(said, NoData)
    assert said.missing == ()
    said = outcome(window.without(signals.FIRST_TOKENS))
    assert isinstance(said, NoData)
    assert said.missing == (signals.FIRST_TOKENS,)


def test_ranks_are_healthy_without_the_front_ends_times(plant):
    """Healthy speaks of the ranks; that the front end was not looked at lowers the confidence once."""
    window = plant().window()
    whole, part = diagnose(window, window).verdict, diagnose(window.without(*FRONT_END), window).verdict
    assert part.klass is Class.HEALTHY
    assert part.confidence == pytest.approx(whole.confidence * UNTESTED, abs=0.001)
    assert set(FRONT_END) <= {m.signal for m in part.missing}


@pytest.mark.parametrize("signal", FRONT_END)
def test_half_of_the_front_ends_times_is_no_front_end_that_is_well(plant, signal):
    """Of a histogram the sum without the count, or the other way round: part of what was read is lost, and healthy is not said."""
    window = plant(kept=1.0).window()
    assert diagnose(window.without(signal), plant().window().without(signal)).verdict.klass is Class.INSUFFICIENT
