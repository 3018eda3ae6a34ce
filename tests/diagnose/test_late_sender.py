"""`slow_rank` by DeepXTrace's matrix: the rank for whose tokens all others wait in dispatch is late with its own work."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from collector import deepxtrace
from collector.model import Clock
from diagnose import late_card
from diagnose.case import Case
from diagnose.engine import diagnose
from diagnose.model import Class, Finding, Severity
from diagnose.rules import load

CASE_01 = Path(__file__).parents[1] / "field_cases" / "01-deepxtrace-ep16-slow-rank4.log"


def ask(window, past=None):
    return load()["slow_rank"].ask(Case(window, past))


def test_the_matrix_names_the_slow_rank_that_the_steps_cannot(plant):
    """Steps take 1.4 times as long and all wait for rank 4: its own 0.4 / 1.4 of a step. Without the matrix the group is slow and nobody
    is named."""
    past = plant().window()
    verdict = diagnose(plant(group=1.4, awaited={4: 5.2}).window(), past).verdict
    assert (verdict.klass, verdict.cause, verdict.ranks) == (Class.SINGLE_POINT, "slow_rank", (4,))
    assert verdict.share is not None
    assert verdict.share.mid == pytest.approx(0.4 / 1.4, abs=0.01)
    assert verdict.severity is Severity.PAGE
    assert verdict.also == ()
    assert verdict.evidence[0].observed == pytest.approx(5.2, rel=0.02)
    blind = diagnose(plant(group=1.4).window(), past).verdict
    assert (blind.klass, blind.ranks) == (Class.INSUFFICIENT, ())
    assert "DeepXTrace" in blind.would_tell


def test_field_case_01_names_rank_4_and_wakes_nobody_without_a_price(plant):
    """The recorded matrix on a level engine without a past: rank 4, a ticket, no cost invented, and what would tell it."""
    matrix = deepxtrace.parse(CASE_01.read_text(), "log")
    found = ask(deepxtrace.attach(plant(ranks=16).window(), matrix, "log"))
    assert isinstance(found, Finding)
    assert found.ranks == (4,)
    assert found.severity is Severity.TICKET
    assert found.share.high == 0.0
    assert found.confidence <= late_card.UNPRICED
    assert "healthy past" in found.would_tell


def test_on_vllm_with_experts_it_names_what_no_metric_can(plant):
    """All forwards end together and no wait is measured: the matrix alone names the rank. Without a common clock it says nothing."""
    seen = plant(awaited={4: 5.2}).window()
    forward, apart = (replace(seen, engine=replace(seen.engine, clock=clock)) for clock in (Clock.FORWARD, Clock.NONE))
    assert ask(forward).ranks == (4,)
    assert not isinstance(ask(apart), Finding)


def test_waits_that_cost_nothing_blame_nobody(plant):
    """The same waits at the past's step time hide behind other work."""
    assert not isinstance(ask(plant(awaited={4: 5.2}).window(), plant().window()), Finding)


@pytest.mark.parametrize(
    "laden",
    [{"length": (6000.0,) * 4 + (18_000.0,) + (6000.0,) * 3}, {"prefill": {4: 0.6}, "prompts": {4: 20_000.0}}],
    ids=["three times the attention", "prefill"],
)
def test_a_rank_that_has_more_to_do_is_not_blamed_for_being_waited_for(plant, laden):
    """All wait for the rank with three times the attention, or with prompts in most of its steps; only a past could tell more."""
    assert not isinstance(ask(plant(awaited={4: 5.2}, **laden).window()), Finding)


def test_no_majority_is_late(plant):
    """Half of the ranks awaited by the other half: who is slow is not known."""
    assert not isinstance(ask(plant(group=1.4, awaited=dict.fromkeys(range(4), 5.2)).window(), plant().window()), Finding)


def test_a_card_that_says_so_itself_is_named_by_its_own_rule(plant):
    """A throttled card is waited for in every dispatch: one cause, with its reason."""
    sick = plant(group=1.3, cards=True, throttled={3: 0.4}, awaited={3: 4.0}).window()
    verdict = diagnose(sick, plant(cards=True).window()).verdict
    assert (verdict.cause, verdict.ranks) == ("gpu_throttled", (3,))
    assert "slow_rank" not in {other.cause for other in verdict.also}


def test_on_vllm_too_a_card_that_says_so_itself_is_named_by_its_own_rule(plant):
    """The matrix and the card's own sign point at one rank: the card's rule names it, with its reason."""
    seen = plant(cards=True, throttled={3: 0.4}, awaited={3: 4.0}).window()
    forward = replace(seen, engine=replace(seen.engine, clock=Clock.FORWARD))
    found = load()["gpu_throttled"].ask(Case(forward))
    assert isinstance(found, Finding)
    assert found.ranks == (3,)
    assert not isinstance(ask(forward), Finding)
