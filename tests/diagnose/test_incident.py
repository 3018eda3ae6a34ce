"""What opens an incident, pages, and ends it. Windows are 10 s long, end to end, unless said."""

from __future__ import annotations

import pytest

from diagnose.incident import Kind, State
from diagnose.model import Class, Severity, Share
from tests.diagnose.story import CLEAR, COOL, LOAD, POLICY, SINGLE, Story, at, bad, calm


def test_the_first_significant_verdict_suspects_and_tells_nobody():
    """One window opens an incident at once with what the verdict said; a notifier stays quiet."""
    story = Story().tell(bad())
    assert (story.one.state, story.one.cause, story.one.ranks) == (State.SUSPECTED, "slow_rank", (3,))
    assert (story.one.klass, story.one.share, story.one.opened) == (SINGLE, 0.2, 1010.0)
    assert [(e.kind, e.notify) for e in story.events] == [(Kind.OPENED, False)]


def test_a_second_window_that_shares_no_time_with_the_first_confirms():
    """Two agreeing windows of 10 s page, once."""
    story = Story().tell(bad(), bad(), bad())
    assert story.one.state is State.CONFIRMED
    assert story.one.confirmed == 1020.0
    assert [(e.kind, e.notify) for e in story.events] == [(Kind.OPENED, False), (Kind.CONFIRMED, True)]


def test_overlapping_windows_do_not_agree_with_themselves():
    """Windows of 10 s cut every second share evidence: the page comes with the window that starts where the first one ended."""
    story = Story()
    for second in range(10):
        story.hear(at(1010.0 + second, bad()))
    assert story.kinds() == {Kind.OPENED: 1}
    story.hear(at(1020.0, bad()))
    assert story.kinds() == {Kind.OPENED: 1, Kind.CONFIRMED: 1}


def test_short_windows_need_more_of_them():
    """Nineteen agreeing windows of one second are less than 20 s of evidence; the twentieth pages."""
    story = Story()
    for second in range(19):
        story.hear(at(1000.0 + second, bad(), length=1.0))
    assert story.kinds() == {Kind.OPENED: 1}
    story.hear(at(1019.0, bad(), length=1.0))
    assert story.kinds() == {Kind.OPENED: 1, Kind.CONFIRMED: 1}


@pytest.mark.parametrize(("share", "opens"), [(0.029, False), (0.03, False), (0.049, False), (0.05, True)])
def test_a_loss_below_the_opening_limit_opens_nothing(share, opens):
    """5 % of step time opens; less does not."""
    assert bool(Story().tell(bad(share=share)).incidents) is opens


@pytest.mark.parametrize(("share", "state"), [(0.03, State.CONFIRMED), (0.029, State.RESOLVED)])
def test_it_takes_a_smaller_loss_to_resolve_than_to_open(share, state):
    """At 3 % a confirmed incident goes on; below that it clears."""
    assert Story().tell(bad(), bad(), *[bad(share=share)] * CLEAR).one.state is state


def test_a_finding_without_a_price_counts_as_its_rule_says():
    """Rules that judge in another unit (requests, seconds of age) leave the share at nothing: they open and confirm, with no share."""
    story = Story().tell(*[bad("stale_ledger", (2,), 0.0, LOAD)] * 2)
    assert (story.one.state, story.one.share, story.one.peak_share) == (State.CONFIRMED, None, None)


def test_a_card_whose_cost_nobody_can_say_yet_is_an_incident():
    """Link errors without end on an engine without a healthy past may cost nothing or everything (0 to 1): people are told, without a
    figure. A fault that is there from the start never gets a past, so waiting for one would mean never."""
    story = Story().tell(*[bad("link_degraded", (2,), Share(0.0, 0.0, 1.0))] * 2)
    assert (story.one.state, story.one.share, story.one.peak_share) == (State.CONFIRMED, None, None)
    story.tell(*[calm()] * CLEAR)
    assert story.one.state is State.RESOLVED
    assert not Story().tell(*[bad("link_degraded", (2,), Share(0.0, 0.0, 0.5))] * 2).incidents, (
        "a cost that is bounded is held to the limit"
    )


def test_resolved_after_the_clear_time_and_told_after_the_cool_down():
    """Healthy windows of 120 s resolve; people hear of it when a further 600 s stayed clear, once."""
    story = Story().tell(bad(), bad(), *[calm()] * (CLEAR - 1))
    assert story.one.state is State.CONFIRMED
    story.tell(calm())
    assert (story.one.state, story.one.resolved) == (State.RESOLVED, 1140.0)
    story.tell(*[calm()] * (COOL - 1))
    assert story.kinds()[Kind.RESOLVED] == 0
    story.tell(*[calm()] * 20)
    assert [(e.kind, e.at, e.notify) for e in story.events][2:] == [(Kind.RESOLVED, 1740.0, True)]
    assert story.one.closed == 1740.0


def test_a_suspicion_that_clears_ends_without_a_word():
    """One bad window and then quiet: closed, and neither page nor all-clear."""
    story = Story().tell(bad(), *[calm()] * (CLEAR + COOL))
    assert not any(e.notify for e in story.events)
    assert story.kinds() == {Kind.OPENED: 1, Kind.RESOLVED: 1}


def test_a_glitch_now_and_then_never_pages():
    """Single bad windows with more than the clear time between them do not persist."""
    story = Story().tell(*[v for _ in range(20) for v in (bad(), *[calm()] * CLEAR)])
    assert story.kinds()[Kind.CONFIRMED] == 0


@pytest.mark.parametrize(("on", "off"), [(1, 1), (2, CLEAR), (5, CLEAR + COOL - 1)])
def test_a_thousand_flaps_give_one_page(on, off):
    """However it flaps, within clear time and cool-down it is one incident: one page, one all-clear, and a bounded number of changes."""
    story = Story().tell(*[v for _ in range(1000) for v in ([bad()] * on + [calm()] * off)])
    story.tell(*[calm()] * (CLEAR + COOL))
    kinds = story.kinds()
    assert (kinds[Kind.OPENED], kinds[Kind.CONFIRMED], kinds[Kind.RESOLVED]) == (1, 1, 1)
    assert kinds[Kind.CHANGED] <= story.now / POLICY.quiet
    assert len(story.one.events) <= POLICY.event_limit


def test_a_return_within_the_cool_down_is_the_same_incident():
    """Back after it had resolved: confirmed again under its id, with an event that says so, and no second page."""
    story = Story().tell(bad(), bad(), *[calm()] * (CLEAR + 5))
    before = story.one
    story.tell(bad())
    assert (story.one.id, story.one.state, story.one.returns, story.one.resolved) == (before.id, State.CONFIRMED, 1, None)
    assert [e.kind for e in story.events] == [Kind.OPENED, Kind.CONFIRMED, Kind.CHANGED]
    assert "came back" in story.events[-1].what


def test_a_loss_between_the_limits_holds_a_cool_down_and_does_not_end_it():
    """What would not open does not re-open either, and is no clear time."""
    story = Story().tell(bad(), bad(), *[calm()] * CLEAR, *[bad(share=0.04)] * 100)
    assert (story.one.state, story.one.returns, story.one.clear) == (State.RESOLVED, 0, POLICY.clear)


def test_a_return_after_the_cool_down_is_another_incident():
    """What was closed stays closed; the same cause later has an id and a page of its own."""
    story = Story().tell(bad(), bad(), *[calm()] * (CLEAR + COOL), bad(), bad())
    assert len({i.id for i in story.incidents}) == 2
    assert story.kinds()[Kind.CONFIRMED] == 2


def test_a_named_finding_of_no_class_opens():
    """whole_group_slow has a cause and a ticket but no class: it is an incident."""
    story = Story().tell(*[bad("whole_group_slow", (), klass=Class.INSUFFICIENT, severity=Severity.TICKET)] * 2)
    assert (story.one.cause, story.one.state) == ("whole_group_slow", State.CONFIRMED)
