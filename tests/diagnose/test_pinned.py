"""Pinned prompts: who is named, who is not, and how often by chance. Times are drawn here, so each answer follows from the draw."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from diagnose import pinned
from diagnose.pinned import Outcome, Verdict, judge, looks


def run(ranks: int, slow: dict[int, float], scatter: float, seed: int, outliers: float = 0.0) -> Verdict:
    """Rounds until there is a verdict. `slow` adds a share to a rank's times; `scatter` is one standard deviation of a logarithm; all times
    of a round move together by 10 %, as load does; a share of `outliers` takes 1.6 times as long."""
    rng = random.Random(seed)
    rounds: list[list[float]] = []
    while True:
        load = math.exp(rng.gauss(0, 0.1))
        rounds.append(
            [
                1.3 * load * (1 + slow.get(r, 0.0)) * math.exp(rng.gauss(0, scatter)) * (1.6 if rng.random() < outliers else 1.0)
                for r in range(ranks)
            ]
        )
        verdict = judge(range(ranks), rounds)
        if verdict.outcome is not Outcome.MORE:
            return verdict


@pytest.mark.parametrize("ranks", [4, 8])
def test_a_rank_eight_percent_slower_is_named_and_nobody_else(ranks: int) -> None:
    """What a card 20 % slow adds to a prompt on a serving engine, whose prompts scatter by 1.5 %: 19 of 20, none wrong."""
    verdicts = [run(ranks, {1: 0.08}, 0.015, seed, outliers=0.02) for seed in range(20)]
    assert {v.ranks for v in verdicts} <= {(1,), ()}
    assert sum(v.ranks == (1,) for v in verdicts) >= 19


def test_alike_cards_are_level_in_20_of_20_tries() -> None:
    """Nobody is named, and less than twice the least slowness is excluded, although load and outliers move the times far more."""
    verdicts = [run(8, {}, 0.015, seed, outliers=0.02) for seed in range(20)]
    assert [v.outcome for v in verdicts] == [Outcome.LEVEL] * 20
    assert max(v.excluded for v in verdicts) < 2 * pinned.LEAST


def test_scatter_that_hides_a_slow_card_is_open_and_not_level() -> None:
    """Prompts that scatter by 30 % exclude nothing: after all rounds the answer is that there is none."""
    verdict = run(4, {}, 0.3, 3)
    assert (verdict.outcome, verdict.ranks, verdict.rounds) == (Outcome.OPEN, (), pinned.ROUNDS)
    assert verdict.excluded > 2 * pinned.LEAST


def test_two_slow_ranks_of_eight_are_both_named_worst_first() -> None:
    """Each is held against those that are left."""
    assert run(8, {2: 0.1, 5: 0.2}, 0.01, 0).ranks == (5, 2)


def test_of_two_ranks_the_slower_needs_twelve_rounds() -> None:
    """A coin a round: 2 x 2^-12 is the first look at which chance is rare enough."""
    verdict = run(2, {1: 0.2}, 0.005, 0)
    assert (verdict.outcome, verdict.ranks, verdict.rounds) == (Outcome.SLOW, (1,), 12)


def test_what_slows_all_alike_names_nobody() -> None:
    """A fixed delay in every step: all prompts take 1.5 times as long."""
    verdict = run(4, dict.fromkeys(range(4), 0.5), 0.01, 0)
    assert (verdict.outcome, verdict.ranks) == (Outcome.LEVEL, ())


def test_a_difference_too_small_to_matter_is_not_named() -> None:
    """Half of the least, without any scatter to hide it."""
    assert run(8, {3: pinned.LEAST / 2}, 1e-4, 0).ranks == ()


def test_there_is_no_verdict_between_looks() -> None:
    """Looking more often would find chance more often."""
    for rounds in range(pinned.ROUNDS + 1):
        outcome = judge([0, 1, 2, 3], [[1.0, 1.5, 1.0, 1.0]] * rounds).outcome
        assert (outcome is Outcome.MORE) == (rounds not in looks() or rounds == 4)  # 4 x 4^-4 is not rare enough yet


def test_bad_times_are_refused() -> None:
    """A probe that failed has no time; one rank has no peer."""
    with pytest.raises(ValueError, match="zero, negative or not finite"):
        judge([0, 1], [[1.0, float("nan")]])
    with pytest.raises(ValueError, match="two ranks or more"):
        judge([0], [[1.0]])


@settings(max_examples=25, deadline=None)
@given(st.lists(st.lists(st.floats(1e-6, 1e4), min_size=3, max_size=3), min_size=4, max_size=12), st.floats(1e-3, 1e3))
def test_a_verdict_does_not_depend_on_the_unit_of_time(rounds: list[list[float]], unit: float) -> None:
    """Names and shares are of ratios, and at most a minority is named."""
    first, second = judge([0, 1, 2], rounds), judge([0, 1, 2], [[unit * t for t in row] for row in rounds])
    assert first.ranks == second.ranks
    assert len(first.ranks) <= 1
    assert [s.slower for s in first.standings] == pytest.approx([s.slower for s in second.standings], rel=1e-6, abs=1e-9)
