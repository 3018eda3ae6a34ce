"""The timetable of faults: how it is written, what it refuses, and what it comes to."""

from __future__ import annotations

import math

import pytest

from workload.config import ClusterConfig
from workload.desk import Desk
from workload.prefix import Segment
from workload.schedule import Scheduled, allowed, check, find, moments, parse
from workload.traffic import Shape
from workload.wire import Drain, Estrange


def test_all_keys_are_read():
    """One text gives one fault with every key."""
    text = "slow_rank:rank=0,onset=20,ramp=5,duration=30,severity=.5"
    assert parse(text) == Scheduled("slow_rank", 0, onset=20, ramp=5, duration=30, severity=0.5)
    assert parse("whole_group_slow").duration == math.inf


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("slow_rank:onst=2", "'onst' is not one of .*; did you mean onset"),
        ("slow_rank:onset=x", "onset must be a number"),
        ("slow_rank:onset=nan", "onset nan"),
        ("slow_rank:onset=-1", "onset -1"),
        ("slow_rank:onset=inf", "onset inf"),
        ("slow_rank:ramp=nan", "ramp nan"),
        ("slow_rank:duration=0", "duration 0"),
        ("slow_rank:duration=nan", "duration nan"),
        ("slow_rank:severity=nan", "severity nan"),
        ("slow_rank:severity=-0.5", "severity -0.5"),
        ("slow_rank:severity=inf", "severity inf"),
        ("slow_rank:duration=3,ramp=4", "ramp 4: the fault lasts 3 s"),
        ("slow_rank:rank=1,rank=2", "rank is given twice"),
        ("slow_rank:rank=1.5", "rank must be a number"),
    ],
)
def test_what_makes_no_sense_is_refused(text, said):
    """The error repeats the text and says what is wrong with it."""
    with pytest.raises(ValueError, match=said):
        parse(text)


def test_a_cluster_refuses_what_it_cannot_have():
    """Before anything starts: ranks that are not there, severities that kill, ramps of what cannot rise, one fault twice at a time."""
    config = ClusterConfig(ranks=4)
    check([Scheduled("slow_rank", 3), Scheduled("slow_rank", 2), Scheduled("slow_process", 3, duration=2)], config)
    check([Scheduled("slow_rank", 3, duration=5), Scheduled("slow_rank", 3, onset=5)], config)
    for schedule, said in (
        ([Scheduled("slow_rank", 4)], "ranks 0 to 3, not on 4"),
        ([Scheduled("slow_rank", -1)], "not on -1"),
        ([Scheduled("long_prefill", 0, severity=100.0)], "severity 100 is not between 0 and 2"),
        ([Scheduled("long_prefill", 0, ramp=2.0)], "cannot rise"),
        ([Scheduled("slow_rank", 0, duration=5.1), Scheduled("slow_rank", 0, onset=5)], "acts twice at the same time on rank 0"),
        ([Scheduled("whole_group_slow", 0), Scheduled("whole_group_slow", 1)], "acts twice"),
        ([Scheduled("slow_rnk", 0)], "did you mean slow_rank"),
    ):
        with pytest.raises(ValueError, match=said):
            check(schedule, config)


def test_a_ramp_rises_by_fifths():
    """Severity .2 at the onset, then every quarter of the ramp a fifth more, all of it at its end; then the end of the fault."""
    found = moments([Scheduled("slow_rank", 1, onset=10, ramp=8, duration=20)])
    assert [(m.at, m.does) for m in found] == [(10, "begin"), (12, "raise"), (14, "raise"), (16, "raise"), (18, "raise"), (30, "end")]
    assert [m.severity for m in found[:4]] == pytest.approx([0.2, 0.4, 0.6, 0.8])


def test_ends_come_before_begins_of_the_same_moment():
    """A fault that follows itself without a gap does not meet itself."""
    found = moments([Scheduled("slow_rank", 1, onset=5), Scheduled("slow_rank", 1, duration=5)])
    assert [(m.at, m.does) for m in found] == [(0, "begin"), (5, "end"), (5, "begin")]


def test_severity_has_a_limit_that_the_fault_names():
    """The limit itself is allowed, above it is not."""
    fault = find("prefix_cache_skew")
    allowed(fault, 0, 1.0, ClusterConfig())
    with pytest.raises(ValueError, match=r"between 0 and 1"):
        allowed(fault, 0, 1.01, ClusterConfig())


def test_the_desk_passes_over_drained_ranks():
    """A request for a drained rank goes to the next one; with all drained it goes where the router said."""
    desk = Desk(3, seed=0)
    desk.obey(Drain(1, True))
    assert [desk.place(r) for r in range(3)] == [0, 2, 2]
    desk.obey(Drain(2, True))
    assert desk.place(1) == 0
    desk.obey(Drain(0, True))
    assert desk.place(1) == 1
    desk.obey(Drain(1, False))
    assert desk.place(2) == 1


def test_a_strangers_beginning_is_of_no_use():
    """Its share of one rank's requests loses cached tokens and prefix, and keeps length, answer and what it leaves behind."""
    desk = Desk(2, seed=0)
    request = Shape(100, 90, 5, (Segment("a", 90),), "b")
    desk.obey(Estrange(1, 1.0))
    assert desk.shape(0, request) == request
    assert desk.shape(1, request) == Shape(100, 0, 5, (), "b")
    desk.obey(Estrange(1, 0.5))
    strangers = sum(desk.shape(1, request) != request for _ in range(1000))
    assert 420 < strangers < 580  # five deviations of 1,000 fair throws
    desk.obey(Estrange(1, 0.0))
    assert desk.shape(1, request) == request
