"""What is no evidence: silence, an idle engine, a verdict on something else, clocks that are set. Windows are 10 s long."""

from __future__ import annotations

from dataclasses import replace

import pytest

from diagnose.incident import Kind, State, advance, age
from diagnose.model import Class, Finding, Healthy, NoData, Share
from tests.diagnose.story import CLEAR, COOL, LOAD, POLICY, STEP, Story, at, bad, calm


def test_insufficient_evidence_neither_opens_nor_resolves():
    """An hour of it leaves a confirmed incident as it was, and an empty book empty."""
    unclear = [calm(Class.INSUFFICIENT)] * 360
    assert Story().tell(*unclear).incidents == ()
    story = Story().tell(bad(), bad(), *unclear)
    assert story.one.state is State.CONFIRMED


def test_silence_is_said_once_and_again_only_after_data():
    """Five minutes without evidence: one stale event. Evidence ends the silence; the next one is said again."""
    unclear = [calm(Class.INSUFFICIENT)] * 60
    story = Story().tell(bad(), bad(), *unclear)
    assert [(e.kind, e.at, e.what) for e in story.events[2:]] == [(Kind.STALE, 1320.0, "no data since 1020")]
    assert story.one.stale
    story.tell(bad())
    assert not story.one.stale
    story.tell(*unclear)
    assert story.kinds()[Kind.STALE] == 2


def test_without_any_verdict_time_alone_makes_an_incident_stale():
    """Nothing arrives at all: `age` says so after five minutes, once, and changes nothing else."""
    story = Story().tell(bad(), bad())
    same, none = age(story.incidents, 1319.0, POLICY)
    assert (same, none) == (story.incidents, ())
    aged, events = age(story.incidents, 1320.0, POLICY)
    assert [(e.kind, e.notify) for e in events] == [(Kind.STALE, True)]
    assert aged[0] == replace(story.one, stale=True, events=(*story.one.events, *events))
    assert age(aged, 9999.0, POLICY) == (aged, ())


@pytest.mark.parametrize(
    ("outcome", "unexplained", "state"),
    [
        (Healthy("level"), 0.0, State.RESOLVED),
        (Healthy("level"), 0.10, State.CONFIRMED),
        (NoData(("sync_wait",)), 0.0, State.CONFIRMED),
    ],
)
def test_an_insufficient_verdict_clears_only_what_its_own_rule_cleared(outcome, unexplained, state):
    """An engine that lacks another rule's signal is never healthy; the incident's own rule ends it, unless unexplained time is lost."""
    quiet = calm(Class.INSUFFICIENT, unexplained)
    assert Story().tell(bad(), bad()).tell(*[quiet] * CLEAR, outcomes=(("slow_rank", outcome),)).one.state is state


def test_an_engine_that_takes_no_steps_clears_nothing():
    """Without a step time the rules' calm is that of an idle engine."""
    story = Story().tell(bad(), bad())
    for second in range(30):
        idle = at(1030.0 + second * STEP, calm(Class.INSUFFICIENT), (("slow_rank", Healthy("level")),))
        story.hear(replace(idle, step_time=None))
    assert (story.one.state, story.one.clear) == (State.CONFIRMED, 0.0)


@pytest.mark.parametrize(
    ("outcome", "state"),
    [
        (Healthy("level"), State.RESOLVED),
        (NoData(("sync_wait",)), State.CONFIRMED),
        (Finding((3,), Share(0.03, 0.03, 0.03), 0.6, "", ()), State.CONFIRMED),
        (Finding((3,), Share(0.029, 0.029, 0.029), 0.6, "", ()), State.RESOLVED),
    ],
)
def test_a_verdict_on_another_cause_leaves_the_word_to_the_rule(outcome, state):
    """While load is blamed, rank 3's incident follows what its own rule said."""
    other = bad("request_count_skew", (0,), klass=LOAD)
    story = Story().tell(bad(), bad()).tell(*[other] * CLEAR, outcomes=(("slow_rank", outcome),))
    assert story.incidents[0].state is state


@pytest.mark.parametrize("behind", [0.0, 1.0, 120.0])
def test_a_late_or_repeated_verdict_changes_nothing(behind):
    """Up to two minutes behind the newest window, whatever it says."""
    story = Story().tell(bad(), *[bad()] * 20)
    for verdict in (bad(), calm(), bad("gpu_throttled", (1,)), calm(Class.INSUFFICIENT)):
        assert advance(story.incidents, at(story.now - behind, verdict), POLICY) == (story.incidents, ())


@pytest.mark.parametrize("window", [(float("nan"), 1100.0), (1000.0, float("inf")), (1100.0, 1100.0)])
def test_a_verdict_without_a_proper_window_changes_nothing(window):
    """No length, or no time at all."""
    story = Story().tell(bad())
    odd = replace(at(1100.0, bad()), start=window[0], end=window[1])
    assert advance(story.incidents, odd, POLICY) == (story.incidents, ())


def test_a_clock_set_back_by_an_hour_goes_on_where_it_was():
    """No duplicate, no second page, and it resolves after the usual clear time on the new clock."""
    story = Story().tell(bad(), bad())
    story.now -= 3600.0
    story.tell(bad())
    assert story.one.state is State.CONFIRMED
    story.tell(*[calm()] * (CLEAR + COOL))
    assert story.kinds() == {Kind.OPENED: 1, Kind.CONFIRMED: 1, Kind.RESOLVED: 1}


def test_a_suspicion_is_confirmed_across_a_clock_set_back():
    """The window on the new clock counts from there: the one after it agrees."""
    story = Story().tell(bad())
    story.now -= 3600.0
    assert story.tell(bad(), bad()).one.state is State.CONFIRMED


def test_a_clock_set_back_takes_no_clear_time_away_and_gives_none():
    """Healthy windows around the step count 10 s each, but for the first one on the new clock, whose overlap is not known."""
    story = Story().tell(bad(), bad(), calm())
    story.now -= 3600.0
    assert story.tell(calm()).one.clear == 10.0
    assert story.tell(calm()).one.clear == 20.0


def test_silence_is_counted_on_the_new_clock():
    """Set back by an hour and then no evidence: said five minutes later, not after an hour and five."""
    story = Story().tell(bad(), bad())
    story.now -= 3600.0
    story.tell(*[calm(Class.INSUFFICIENT)] * 31)
    assert story.kinds()[Kind.STALE] == 1


def test_a_gap_is_no_clear_time():
    """A day between two healthy windows of 10 s is 10 s of clear time."""
    story = Story().tell(bad(), bad(), calm())
    assert story.tell(calm(), every=86400.0).one.clear == 20.0
