"""What continues an incident and what is another one: ranks that join, leave and move, causes that are known better."""

from __future__ import annotations

from diagnose.incident import Kind, State, advance
from diagnose.model import Finding, Severity, Share
from tests.diagnose.story import CLEAR, LOAD, POLICY, Story, at, bad, calm


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


def test_other_engines_are_not_touched():
    """A verdict on one engine leaves another's incident as it was."""
    story = Story().tell(bad())
    after, events = advance(story.incidents, at(5000.0, calm(), engine="f"), POLICY)
    assert (after, events) == (story.incidents, ())
