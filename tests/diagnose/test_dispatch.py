"""`dispatch_skew`: only a matrix of who waits for whom tells it from a slow group."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from collector import deepxtrace, signals
from diagnose.case import Case
from diagnose.confidence import calibration
from diagnose.engine import diagnose
from diagnose.model import Class, Finding, Healthy, NoData
from diagnose.rules import load

CASE_01 = Path(__file__).parents[1] / "field_cases" / "01-deepxtrace-ep16-slow-rank4.log"
MATRIX = (signals.DISPATCH_WAIT, signals.DISPATCH_AWAITED)


def ask(window, past=None):
    return load()["dispatch_skew"].ask(Case(window, past))


def test_it_costs_what_the_step_takes_more_than_before(plant, scenes):
    """Rank 6 waits 8 times as long and steps take 1.4 times as long: 0.4 / 1.4 of a step."""
    found = ask(scenes["dispatch_skew"].window(), plant().window())
    assert isinstance(found, Finding)
    assert found.ranks == (6,)
    assert found.share.mid == pytest.approx(0.4 / 1.4, abs=0.01)
    assert found.would_tell == ""


def test_without_a_past_no_cost_is_invented(scenes):
    """The queue is seen, its price is not: 0, less sure, and what would tell."""
    found = ask(scenes["dispatch_skew"].window())
    assert isinstance(found, Finding)
    assert found.share.mid == found.share.high == 0.0
    assert "healthy past" in found.would_tell


def test_the_same_steps_without_the_matrix_are_a_slow_group(scenes):
    """Without who waits for whom the answer is insufficient evidence and names no rank."""
    window = scenes["dispatch_skew"].window().without(*MATRIX)
    verdict = diagnose(window, scenes["healthy"].window()).verdict
    assert verdict.klass is Class.INSUFFICIENT
    assert verdict.ranks == ()
    found = ask(window)
    assert isinstance(found, NoData)
    assert found.missing == MATRIX


def test_an_engine_without_the_matrix_can_still_be_healthy(plant):
    """Hardly any engine has one: the rule's silence keeps no verdict from being healthy, nor from ruling structure out."""
    window = plant().window()
    verdict = diagnose(window, window).verdict
    assert verdict.klass is Class.HEALTHY
    assert verdict.confidence == calibration().healthy  # nothing was left untested
    assert Class.STRUCTURAL in {r.klass for r in verdict.ruled_out}


def test_case_01_a_late_rank_is_no_matter_of_dispatch(plant):
    """Field case 01: all others wait for rank 4, which computes slowly; the rule says so and blames no queue."""
    matrix = deepxtrace.parse(CASE_01.read_text(), "log")
    found = ask(deepxtrace.attach(plant(ranks=16).window(), matrix, "log"))
    assert isinstance(found, Healthy)
    assert "rank 4: it is late itself" in found.why


def test_hot_experts_are_left_to_their_rule(plant):
    """With balancedness 0.3 the tokens arrive late because there are more of them."""
    found = ask(plant(experts=0.015, balancedness=0.3, hot=6, dispatch={6: 8.0}).window(), plant().window())
    assert isinstance(found, Healthy)
    assert "experts draw more" in found.why


def test_a_queue_that_costs_nothing_is_healthy(plant):
    """Longer waits at an unchanged step time are hidden behind other work."""
    found = ask(plant(dispatch={6: 8.0}).window(), plant().window())
    assert isinstance(found, Healthy)
    assert "no cost" in found.why


def test_unknown_experts_make_it_less_sure(plant, scenes):
    """Without balancedness hot experts are not excluded."""
    window, past = scenes["dispatch_skew"].window(), plant().window()
    blind = window.without(signals.BALANCEDNESS_SUM, signals.BALANCEDNESS_COUNT)
    whole, part = ask(window, past), ask(blind, past)
    assert isinstance(whole, Finding)
    assert isinstance(part, Finding)
    assert part.confidence < whole.confidence
    assert "exclude hot experts" in part.would_tell


def test_level_waits_are_healthy(plant):
    """1.26 times a neighbour's wait was measured on ranks with nothing wrong."""
    assert isinstance(ask(plant(dispatch={6: 1.26}).window(), plant().window()), Healthy)


def test_no_engine_is_named_by_an_empty_matrix(plant):
    """A matrix without a measure (too few on a node) is no data."""
    window = plant(dispatch={6: 8.0}).window()
    empty = {name: window.get(name) * float("nan") for name in MATRIX}
    assert isinstance(ask(replace(window, values=dict(window.values) | empty)), NoData)


def test_the_matrix_is_asked_for_where_it_would_tell(scenes):
    """A slow group is told that it would tell; a long context is not, as no matrix would change that verdict.
    It is nobody's missing signal."""
    past = scenes["healthy"].window()
    slow, long = (diagnose(scenes[name].window(), past).verdict for name in ("whole_group_slow", "context_length_skew"))
    assert "DeepXTrace" in slow.would_tell
    assert "DeepXTrace" not in long.would_tell
    assert not set(MATRIX) & {m.signal for m in (*slow.missing, *long.missing)}
