"""The scorer on hand-made verdicts: what counts as right, and what each figure counts."""

from __future__ import annotations

import math
from dataclasses import replace

from benchmarks.accuracy import goals, plan
from benchmarks.accuracy.headline import headline
from benchmarks.accuracy.judge import Judged, Truth, judge, right
from benchmarks.accuracy.observe import Observed, Said
from diagnose.rules import load
from workload import faults, labels

SPEC = plan.Spec("single", "x", "chat", 100, (), 60.0, 130.0)
LOAD = Truth("context_length_skew", "load", frozenset({3}), 1.0, "metrics")
HOST = Truth("host_cpu_starved", "single-point", frozenset({3}), 1.0, "metrics")
CARD = Truth("gpu_throttled", "single-point", frozenset({3}), 1.0, "card")


def said(klass: str, cause: str | None = None, ranks: tuple[int, ...] = (3,), confidence: float = 0.9, **more) -> Said:
    return Said(klass, cause, ranks if cause else (), confidence, confidence, "ticket", **more)


def run(one: Said, *truths: Truth, **more) -> Judged:
    return Judged(SPEC, truths, Observed(one, more.pop("rise", 1.3), frozenset(), **more))


def test_right_is_class_cause_and_no_innocent_rank():
    """No rank named is right, an innocent one is not; the class under another name is not; healthy is right when nothing is wrong."""
    assert right(said("load", "context_length_skew"), (LOAD,))
    assert right(said("load", "context_length_skew", ()), (LOAD,))
    assert not right(said("load", "context_length_skew", (2,)), (LOAD,))
    assert not right(said("load", "kv_pressure"), (LOAD,))
    assert not right(said("healthy"), (LOAD,))
    assert right(said("healthy"), ())
    assert right(said("healthy"), (replace(HOST, tells="hidden"),))


def test_a_slow_group_is_the_right_word_only_for_what_cannot_be_told():
    """Insufficient evidence with the slow group's name is right for a card that no page shows, wrong for a load that it does."""
    slow = said("insufficient-evidence", "whole_group_slow", ())
    assert right(slow, (CARD,))
    assert not right(slow, (LOAD,))
    assert not right(slow, ())


def test_the_headline_counts_each_run_where_it_belongs():
    """Of three tellable faults one is right, one names a wrong rank, one abstains; a card counts only all in; a false alarm is wrong."""
    runs = [
        run(said("load", "context_length_skew"), LOAD),
        run(said("single-point", "host_cpu_starved", (2,)), HOST),
        run(said("insufficient-evidence"), HOST),
        run(said("insufficient-evidence"), CARD),
        run(said("load", "kv_pressure", confidence=0.85)),
    ]
    ours, all_in = headline(runs), headline(runs, all_in=True)
    assert str(ours.top1).startswith("0.333 ")
    assert ours.top1.of == 3
    assert str(ours.cause).startswith("0.667 ")
    assert ours.cause.of == 3
    assert str(ours.abstained).startswith("0.333 ")
    assert all_in.abstained.value == 0.5
    assert (ours.wrong.value, ours.wrong.of, ours.confident_wrong) == (0.25, 4, 1)
    assert all_in.cause.value == 0.5


def test_a_label_becomes_the_class_of_its_fault(tmp_path):
    """Class and ranks come with the fault; a host fault without a rise is hidden, a card without card signals is the card's."""
    path = tmp_path / "labels"
    observed = Observed(said("healthy"), 1.01, frozenset())
    labels.append(path, labels.Label("host_cpu_starved", 3, 1.0, 0.0, 1.0, (3,)))
    assert judge(SPEC, path, observed).truths == (replace(HOST, tells="hidden"),)
    assert judge(SPEC, path, replace(observed, rise=1.2)).truths == (HOST,)
    labels.append(path, labels.Label("link_degraded", 5, 1.0, 0.0, 1.0, (5,)))
    both = judge(SPEC, path, observed)
    assert [t.klass for t in both.truths] == ["single-point", "single-point"]
    assert not both.tellable


def test_a_load_that_moved_nothing_has_no_effect(tmp_path):
    """Within 2 % of its twin a load fault did nothing, and healthy is right; a late host, and a ledger that is too old, are there all the
    same; where no twin was made nothing is let off."""
    path = tmp_path / "labels"
    observed = Observed(said("healthy"), 1.2, frozenset(), moved=0.01)
    for fault, tells in (("kv_pressure", "none"), ("host_cpu_starved", "metrics"), ("stale_ledger", "metrics")):
        labels.append(path, labels.Label(fault, 3, 1.0, 0.0, 1.0, (3,)))
        assert judge(SPEC, path, observed).truths[-1].tells == tells
    still = judge(SPEC, path, observed).truths[0]
    assert right(said("healthy"), (still,))
    for moved in (0.02, math.nan):
        assert judge(SPEC, path, replace(observed, moved=moved)).truths[0].tells == "metrics"


def test_what_had_no_effect_is_counted_apart():
    """Of two faults one did nothing: the headline is of the other, and a line says which and what was said of it."""
    idle = replace(LOAD, tells="none")
    runs = [run(said("load", "context_length_skew"), LOAD), run(said("healthy"), idle)]
    assert (headline(runs).cause.of, headline(runs, all_in=True).cause.of) == (1, 2)
    line = next(goal for goal in goals.classes(runs) if "without effect" in goal.what)
    assert line.measured == "1 (context_length_skew x1); healthy x1"


def test_no_label_file_means_that_nothing_was_wrong(tmp_path):
    """A healthy run has no labels."""
    assert judge(SPEC, tmp_path / "none", Observed(said("healthy"), 1.0, frozenset())).truths == ()


def test_mixtures_need_both_names():
    """First cause and further ones count alike; one of two is not both."""
    also = (("single-point", "host_cpu_starved", (5,)),)
    both, one = run(said("load", "context_length_skew", also=also), LOAD, HOST), run(said("load", "context_length_skew"), LOAD, HOST)
    named = goals.mixtures([both, one])[0]
    assert named.measured.startswith("0.500 ")


def test_time_to_verdict_is_the_second_agreeing_poll():
    """Right at 3 s, not at 4 s, right at 6 and 7 s: 7 s. Never said twice: never."""
    yes, no = said("load", "context_length_skew"), said("healthy")
    polls = ((3.0, yes), (4.0, no), (6.0, yes), (7.0, yes))
    measured = goals.times([run(yes, LOAD, polls=polls)])
    assert measured[0].measured.startswith("median 7 s")
    assert "1 never" in goals.times([run(yes, LOAD, polls=polls[:3])])[0].measured


def test_a_signal_less_may_weaken_and_must_not_turn():
    """Insufficient and the same class are kept; another class, healthy too, is a change that is named."""
    yes = said("load", "context_length_skew")
    gone = {"a": said("insufficient-evidence"), "b": yes, "c": said("healthy"), "d": yes}
    found = goals.removed([run(yes, LOAD, removed=gone)])
    assert found.measured.startswith("0.750 ")
    assert "context_length_skew without c: load becomes healthy" in found.section


def test_the_smallest_slowdown_needs_every_larger_one_found():
    """Slowdowns of 8 % are found and of 15 % are not: what counts is the size from which on all are."""
    yes = said("load", "context_length_skew")

    def at(rise: float, found: bool) -> Judged:
        return run(yes, LOAD, rise=rise, confirmed=((17.0, yes),) if found else ())

    assert goals.power([at(1.08, True), at(1.15, False), at(1.3, True), at(1.6, True)]).measured == "20%"
    assert goals.power([at(1.08, True), at(1.15, True), at(1.3, True), at(1.6, True)]).measured == "5%"
    assert goals.power([at(1.6, False)]).measured.startswith("none")


def test_a_load_blamed_on_a_card_counts():
    """One of two loads was blamed on a single point."""
    runs = [run(said("load", "context_length_skew"), LOAD), run(said("single-point", "slow_rank"), LOAD), run(said("load", "x"), HOST)]
    assert goals.misblame(runs).measured.startswith("0.500 ")
    assert math.isclose(float(goals.misblame(runs).measured.split()[0]), 0.5)


def test_every_fault_takes_part_by_itself():
    """A new fault is planned without an edit here, and a fault that names a rule has that rule's class."""
    planned = {spec.about for spec in plan.single([100], ["chat"])}
    assert planned == set(faults.load())
    assert {f.klass for f in faults.load().values() if f.id in load() and f.klass != "neither"} <= {"single-point", "load", "structural"}


def test_a_note_blames_nobody():
    """Of a healthy run and a card fault that each get a note of another class none is blamed wrongly; the fault is abstained on."""
    note = replace(said("load", "idle_lockstep"), severity="note")
    counted = headline([run(note), run(note, HOST), run(said("load", "idle_lockstep"))])
    assert (counted.wrong.of, counted.abstained.of) == (3, 1)
    assert str(counted.wrong).startswith("0.333 ")
    assert str(counted.abstained).startswith("1.000 ")
