"""Whose card is slow, on panels made by C = c0 + max_r s_r P_r + load + e, with the truth known."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from diagnose import late_card, slow_card
from diagnose.case import Case
from diagnose.engine import diagnose
from diagnose.model import Class, Healthy
from diagnose.slow_card import Named, Nobody, Panel, Unidentified, look
from tests.diagnose.conftest import as_stated

COST = 15e-9  # s per pair: 44,928 B at 3.0 TB/s


def panel(
    *,
    slow: dict[int, float] | None = None,
    ranks: int = 8,
    points: int = 150,
    lift: dict[int, float] | None = None,
    noise: float = 2e-4,
    seed=0,
) -> Panel:
    """Pairs that wander by 15,000 around 60,000 with a memory of ten intervals; `lift` pairs more on some ranks; cards `slow` times."""
    rng = np.random.default_rng(seed)
    walk = np.zeros((ranks, points))
    for t in range(1, points):
        walk[:, t] = 0.9 * walk[:, t - 1] + 0.44 * rng.standard_normal(ranks)
    pairs = 60_000 + 15_000 * walk + np.array([(lift or {}).get(r, 0.0) for r in range(ranks)])[:, None]
    tokens = 75.0 + 3.0 * rng.standard_normal(points)
    factors = np.array([(slow or {}).get(r, 1.0) for r in range(ranks)])[:, None]
    cadence = 0.040 + COST * (factors * pairs).max(axis=0) + 8e-5 * tokens + noise * rng.standard_normal(points)
    return Panel(pairs, cadence, tokens[None, :])


@pytest.mark.parametrize("rank", range(8))
def test_a_card_at_half_speed_is_named_and_a_pair_of_it_costs_more_than_usual(rank):
    """Five minutes at 2 s in which leaders change: the rank is named; a pair of it costs more than the usual 15 ns and,
    as it does not lead in every step, at most twice that."""
    found = look(panel(slow={rank: 2.0}, seed=rank + 10), COST)
    assert isinstance(found, Named)
    assert found.row == rank
    assert COST < found.slope < 2 * COST + 3 * found.error
    assert found.follows > 0.5


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), ranks=st.integers(2, 16), lift=st.floats(0, 60_000), points=st.integers(1, 300))
def test_level_cards_never_name_anyone(seed, ranks, lift, points):
    """However loads differ, and however many ranks and intervals: with equal cards no rank is named."""
    assert not isinstance(look(panel(ranks=ranks, points=points, lift={0: lift}, seed=seed), COST), Named)


def test_level_cards_and_changing_leaders_are_nobodys_fault():
    """With enough variation that a card twice as slow would have shown, the answer is nobody, not unknown."""
    assert isinstance(look(panel(), COST), Nobody)


@pytest.mark.parametrize("slow", [{}, {2: 2.0}], ids=["level", "slow-leader"])
def test_a_leader_that_never_changes_hides_whose_card_it_is(slow):
    """Rank 2 has most pairs all the time: level or slow, the cadence follows it, and the answer says what would tell."""
    found = look(panel(slow=slow, lift={2: 200_000.0}), COST)
    assert isinstance(found, Unidentified)
    assert "leader never changes" in found.why
    assert "dcgm" in found.would_tell


@pytest.mark.parametrize("seed", range(20))
def test_two_slow_cards_are_never_blamed_on_a_third_and_seldom_on_one(seed):
    """The step follows the greater of two slow ranks: both stand out, so neither is blamed alone unless the other never led."""
    found = look(panel(slow={1: 2.0, 6: 2.0}, seed=seed), COST)
    assert not isinstance(found, Named) or found.row in (1, 6)
    assert not isinstance(found, Nobody)


def test_all_cards_slow_alike_name_nobody():
    """Half the bandwidth on every card is the group's, not a rank's."""
    assert not isinstance(look(panel(slow=dict.fromkeys(range(8), 2.0)), COST), Named)


def test_short_windows_abstain():
    """Five intervals, a window of ten seconds, name nobody even for a card four times as slow."""
    found = look(panel(slow={3: 4.0}, points=5), COST)
    assert isinstance(found, Unidentified)
    assert "too few" in found.why


def test_a_step_time_that_prompts_move_abstains():
    """Scatter of a tenth of the step time drowns a slow card."""
    assert isinstance(look(panel(slow={3: 2.0}, noise=5e-3), COST), Unidentified)


def test_a_card_slow_in_one_half_alone_is_not_yet_named():
    """The halves must agree: rank 3's card turns slow only at two thirds of the window."""
    level, sick = panel(seed=5), panel(slow={3: 2.0}, seed=5)
    mixed = np.where(np.arange(150) < 100, level.cadence, sick.cadence - sick.cadence.mean() + level.cadence.mean())
    assert not isinstance(look(replace(level, cadence=mixed), COST), Named)


def window_of(plant, seen: Panel):
    """A plant's window with the panel's pairs and cadence in it, at one interval a second."""
    window = replace(plant(seconds=len(seen.cadence)), length=(60_000.0 / 8,) * 64).window()
    rate = np.broadcast_to(1.0 / seen.cadence, seen.pairs.shape)
    changed = {
        "resident_tokens": seen.pairs,
        "attention_pairs": seen.pairs * rate,
        "decode_steps": rate,
        "decode_time": np.ones_like(rate),
        "steps_active": rate,
        "graph_steps": rate,
        "attention_tokens": seen.load / 8.0 * rate,
        "forward_time": np.ones_like(rate),
        "running_requests": np.broadcast_to(seen.load / 8.0, seen.pairs.shape),
    }
    return replace(window, values={**window.values, **changed})


def test_the_verdict_names_the_card_and_the_group_is_not_blamed_too(plant):
    """With a healthy past: slow_rank on rank 4, its share the rise that the past prices, and whole_group_slow says who explains it."""
    sick = panel(slow={4: 2.0})
    sick = replace(sick, cadence=sick.cadence + 0.015)  # a slow card reads its weights slowly too
    past = window_of(plant, panel(seed=1))
    result = diagnose(window_of(plant, sick), past)
    assert (result.verdict.cause, result.verdict.ranks) == ("slow_rank", (4,))
    assert result.verdict.klass is Class.SINGLE_POINT
    group = {o.rule: o.outcome for o in result.outcomes}["whole_group_slow"]
    assert isinstance(group, Healthy)
    assert "rank 4" in group.why


def test_without_a_past_the_share_is_a_range_and_the_confidence_moderate(plant):
    """What the card costs beyond its pairs is not known: the range holds the truth of 1 - 1/2 at most, confidence stays at 0.6 or below."""
    verdict = diagnose(window_of(plant, panel(slow={4: 2.0})), sure=as_stated).verdict
    assert (verdict.cause, verdict.ranks) == ("slow_rank", (4,))
    assert verdict.share is not None
    truth = COST * 60_000 / 0.050
    assert verdict.share.low <= truth <= verdict.share.high
    assert verdict.confidence <= late_card.UNPRICED


def test_a_missing_signal_leaves_the_question_unasked(plant):
    """Without resident tokens, decode moments, prefill or request counts there is no panel, and no card is named."""
    window = window_of(plant, panel(slow={4: 2.0}))
    for signal in ("resident_tokens", "decode_steps", "prefill_tokens", "running_requests"):
        assert slow_card.panel(window.without(signal)) is None
        assert Case(window.without(signal)).card is None
