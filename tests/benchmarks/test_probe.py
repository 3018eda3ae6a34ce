"""The probe's rounds in virtual time, while the cluster serves."""

from __future__ import annotations

from benchmarks.probe import CLOCK, SLOW, virtual
from diagnose.pinned import Outcome

SEEDS = range(3)


def test_alike_cards_are_level() -> None:
    """Four ranks with chat traffic: nobody is named. A run may stay open, as one of twenty does in the benchmark."""
    found = [virtual(4, 0.0, 8192, "chat", seed) for seed in SEEDS]
    assert {one.ranks for one in found} == {()}
    assert sum(one.outcome is Outcome.LEVEL for one in found) >= 2


def test_a_card_without_a_fifth_of_its_clock_is_named_and_no_other() -> None:
    """Within the most rounds that are stated; a run may stay open, as one of seven does in the benchmark."""
    named = [virtual(4, CLOCK, 8192, "chat", seed) for seed in SEEDS]
    assert {found.ranks for found in named} <= {(SLOW,), ()}
    assert sum(found.ranks == (SLOW,) for found in named) >= 2
    assert all(found.rounds <= 16 for found in named)
