"""Verdicts through time: what opens, pages, continues, splits, and ends. Windows are 10 s long, end to end, unless said."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace

import pytest

from collector.model import Engine
from diagnose.incident import Event, Incident, Kind, Policy, State, advance, age
from diagnose.model import (
    Class,
    EngineDiagnosis,
    Finding,
    Healthy,
    LostTime,
    NoData,
    RuleOutcome,
    Severity,
    Share,
    Verdict,
)

POLICY = Policy()
STEP = 10.0
CLEAR = int(POLICY.clear / STEP)  # healthy windows that resolve
COOL = int(POLICY.cool_down / STEP)  # further ones that close
SINGLE, LOAD = Class.SINGLE_POINT, Class.LOAD


def bad(cause="slow_rank", ranks=(3,), share=0.2, klass=SINGLE, severity=Severity.PAGE, confidence=0.9, also=()) -> Verdict:
    cost = share if isinstance(share, Share) else Share(share, share, share)
    return Verdict(klass, cause, ranks, confidence, f"{cause} on {ranks}", severity, cost, LostTime(cost.mid), also=also)


def calm(klass=Class.HEALTHY, unexplained=0.0) -> Verdict:
    return Verdict(klass, None, (), 0.9, "", Severity.NOTE, None, LostTime(unexplained, {"unexplained": unexplained}))


def at(end: float, verdict: Verdict, outcomes=(), length=STEP, engine="e") -> EngineDiagnosis:
    said = tuple(RuleOutcome(rule, outcome) for rule, outcome in outcomes)
    return EngineDiagnosis(Engine(engine, "sglang"), end - length, end, 3, (), 0.03, verdict, said)


class Story:
    """Verdicts, each one window after the other."""

    def __init__(self, policy: Policy = POLICY) -> None:
        self.incidents: tuple[Incident, ...] = ()
        self.events: list[Event] = []
        self.now, self.policy = 1000.0, policy

    def tell(self, *verdicts: Verdict, outcomes=(), every=STEP) -> Story:
        for verdict in verdicts:
            self.now += every
            self.hear(at(self.now, verdict, outcomes))
        return self

    def hear(self, diagnosis: EngineDiagnosis) -> list[Event]:
        self.incidents, events = advance(self.incidents, diagnosis, self.policy)
        self.events += events
        return list(events)

    def kinds(self) -> Counter[Kind]:
        return Counter(e.kind for e in self.events)

    @property
    def one(self) -> Incident:
        (incident,) = self.incidents
        return incident


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


def test_identity_survives_a_change_of_every_number():
    """Share, confidence and severity move; id, opening and page do not. The peak is kept."""
    story = Story().tell(bad(share=0.4), bad(share=0.4), bad(share=0.1, confidence=0.5, severity=Severity.TICKET))
    assert (story.one.share, story.one.peak_share, story.one.confidence) == (0.1, 0.4, 0.5)
    assert (story.one.severity, story.one.opened) == (Severity.TICKET, 1010.0)
    assert story.kinds()[Kind.CONFIRMED] == 1


def test_the_id_is_the_same_in_every_run_and_differs_by_engine():
    """Two runs over the same verdicts agree on ids; another engine's incident differs."""
    first, second = Story().tell(bad()), Story().tell(bad())
    other, _ = advance((), at(1010.0, bad(), engine="f"), POLICY)
    assert first.one.id == second.one.id != other[0].id


def test_a_rank_joining_or_leaving_continues_the_incident():
    """(3) to (3, 5) to (5): one incident, its ranks updated, and what is said too soon after the first change is said later."""
    story = Story().tell(bad(), bad(), bad(ranks=(3, 5)))
    assert [i.ranks for i in story.incidents] == [(3, 5)]
    assert story.events[-1].kind is Kind.CHANGED
    assert story.events[-1].what == "ranks 3 became 3, 5"
    story.tell(*[bad(ranks=(5,))] * 29)
    assert story.one.ranks == (5,)
    assert story.kinds()[Kind.CHANGED] == 1
    story.tell(bad(ranks=(5,)))
    assert story.events[-1].what == "ranks 3, 5 became 5"
    assert story.kinds()[Kind.CONFIRMED] == 1


def test_the_same_single_point_on_another_rank_is_another_incident():
    """Rank 3's process was slow, now rank 5's is: two incidents, two pages, and the first one clears."""
    found = (("slow_rank", Finding((5,), Share(0.2, 0.2, 0.2), 0.9, "", ())),)
    story = Story().tell(bad(), bad()).tell(*[bad(ranks=(5,))] * CLEAR, outcomes=found)
    assert {i.ranks: i.state for i in story.incidents} == {(3,): State.RESOLVED, (5,): State.CONFIRMED}
    assert story.kinds()[Kind.CONFIRMED] == 2


def test_a_single_point_that_hops_back_to_a_rank_it_named_is_the_same_incident():
    """(3), (3, 5), (5), (3): the incident has named rank 3 before."""
    story = Story().tell(bad(), bad(ranks=(3, 5)), bad(ranks=(5,)), bad(ranks=(3,)))
    assert story.one.ranks == (3,)


def test_load_that_moves_to_another_rank_is_the_same_incident():
    """A router's unfairness shows on whichever rank it hits now: one incident, one page."""
    story = Story().tell(*[bad("request_count_skew", (k % 8,), klass=LOAD) for k in range(50)])
    assert story.one.state is State.CONFIRMED
    assert story.kinds()[Kind.CONFIRMED] == 1


def test_a_cause_that_is_known_better_keeps_its_incident():
    """slow_rank on rank 3 becomes host_cpu_starved on rank 3 when CPU evidence arrives: one incident, renamed, with an event."""
    story = Story().tell(bad(), bad(), bad("host_cpu_starved"))
    assert story.one.cause == "host_cpu_starved"
    assert story.events[-1].what == "slow_rank is now known as host_cpu_starved"
    assert story.kinds() == {Kind.OPENED: 1, Kind.CONFIRMED: 1, Kind.CHANGED: 1}


def test_further_causes_of_a_verdict_are_incidents_of_their_own():
    """Two causes in one verdict, on the same rank or not, are two incidents with two pages."""
    both = bad(also=(bad("gpu_throttled"), bad("request_count_skew", (0,), klass=LOAD)))
    story = Story().tell(both, both)
    assert {(i.cause, i.ranks) for i in story.incidents} == {("slow_rank", (3,)), ("gpu_throttled", (3,)), ("request_count_skew", (0,))}
    assert all(i.state is State.CONFIRMED for i in story.incidents)


def test_two_incidents_that_turn_out_to_be_one_merge_into_the_one_that_people_know():
    """Ranks 3 (suspected, older) and 5 (confirmed), then both in one finding: rank 5's continues with both ranks, the other one closes."""
    story = Story().tell(bad(ranks=(3,)), bad(ranks=(5,)), bad(ranks=(5,)), bad(ranks=(3, 5)))
    known = {i.open: i for i in story.incidents}
    assert (known[True].ranks, known[True].state) == ((3, 5), State.CONFIRMED)
    assert known[False].ranks == (3,)
    assert known[True].id in known[False].events[-1].what
    assert story.kinds()[Kind.CONFIRMED] == 1
    assert not any(e.notify for e in story.events if e.kind is Kind.RESOLVED)


def test_a_merged_incident_brings_the_ranks_that_it_had_named():
    """One named 7 and then 3, the other 5: after they merged, the cause on 7 alone is still the same incident."""
    story = Story().tell(bad(ranks=(3, 7)), bad(share=0.04), bad(ranks=(5,)), bad(ranks=(5,)), bad(ranks=(3, 5)), bad(ranks=(7,)))
    assert [i.ranks for i in story.incidents if i.open] == [(7,)]


def test_a_cause_goes_to_its_own_incident_before_it_renames_another():
    """Two causes on rank 3, of which one stays: it continues its own incident, and the other one clears under its own name."""
    both = bad(share=0.3, also=(bad("host_cpu_starved"),))
    story = Story().tell(both, both, *[bad("host_cpu_starved")] * CLEAR)
    assert {i.cause: i.state for i in story.incidents} == {"slow_rank": State.RESOLVED, "host_cpu_starved": State.CONFIRMED}


def test_a_finding_that_can_no_longer_name_the_rank_keeps_it():
    """Signals got lost and the same rule names nobody: the incident stays with the rank it knew."""
    story = Story().tell(bad(), bad(), bad(ranks=()))
    assert story.one.ranks == (3,)


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


def test_a_named_finding_of_no_class_opens():
    """whole_group_slow has a cause and a ticket but no class: it is an incident."""
    story = Story().tell(*[bad("whole_group_slow", (), klass=Class.INSUFFICIENT, severity=Severity.TICKET)] * 2)
    assert (story.one.cause, story.one.state) == ("whole_group_slow", State.CONFIRMED)


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


def test_memory_is_bounded_and_no_page_is_given_up():
    """With more causes than there is room for, suspected incidents make room, confirmed ones stay; closed ones are kept up to a limit."""
    small = Policy(open_limit=4, closed_limit=3)
    story = Story(small).tell(bad(ranks=(0,)), bad(ranks=(0,)))
    first = story.one.id
    nothing = (("slow_rank", NoData(())),)
    story.tell(*[bad(ranks=(k,)) for k in range(1, 40)], outcomes=nothing)
    open_ones = [i for i in story.incidents if i.open]
    assert len(open_ones) == 4
    assert first in {i.id for i in open_ones}
    assert len(story.incidents) - 4 <= 3
    assert not any(e.notify for e in story.events if e.kind is Kind.RESOLVED)


def test_what_has_just_ended_is_still_there_to_be_told():
    """An incident whose all-clear is due now is among those returned, even if none is kept afterwards."""
    story = Story(Policy(closed_limit=0)).tell(bad(), bad(), *[calm()] * (CLEAR + COOL))
    assert story.events[-1].incident == story.one.id
    assert story.tell(calm()).incidents == ()


def test_nothing_makes_room_when_people_know_of_all():
    """Four confirmed incidents fill a book of four: a fifth cause has to wait."""
    full = bad(ranks=(0,), also=tuple(bad(ranks=(k,)) for k in (1, 2, 3)))
    story = Story(Policy(open_limit=4)).tell(full, full, bad(ranks=(9,)))
    assert {i.ranks for i in story.incidents} == {(0,), (1,), (2,), (3,)}


def test_other_engines_are_not_touched():
    """A verdict on one engine leaves another's incident as it was."""
    story = Story().tell(bad())
    after, events = advance(story.incidents, at(5000.0, calm(), engine="f"), POLICY)
    assert (after, events) == (story.incidents, ())


def test_incidents_are_stored_and_read_back_equal():
    """Through JSON text and back, with every optional field filled and empty."""
    both = bad(also=(bad("stale_ledger", (), 0.0, LOAD),))
    story = Story().tell(both, both, bad(ranks=(3, 5)), *[calm()] * (CLEAR + COOL))
    for incident in (*Story().tell(both).incidents, *story.incidents):
        assert Incident.from_json(json.loads(json.dumps(incident.to_json(), allow_nan=False))) == incident
