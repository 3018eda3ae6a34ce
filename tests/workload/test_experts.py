"""Where the tokens' copies go: popularity, copies of popular experts, who holds which, and what a dispatch makes of a hot card."""

from __future__ import annotations

import statistics

import numpy as np
import pytest

from workload.config import EXPERTS, ClusterConfig, Experts, VllmFlags
from workload.device import Work, placement
from workload.device.experts import SAMPLED_LAYERS, TOP_K, ExpertLoad, balancedness, hottest
from workload.device.roofline import Roofline

DECODES = [Work(decode_tokens=9, decode_pairs=54_000)] * 8


def mean_balance(experts: Experts, tokens: int = 20_000, seed: int = 1) -> float:
    """Of large batches, so that chance plays no part."""
    load = ExpertLoad(8, seed, experts)
    return statistics.mean(b for _ in range(50) if (b := balancedness(load.rows(tokens))) is not None)


def test_every_copy_goes_to_some_card():
    """8 copies a token and layer, none lost and none invented, whatever the number of cards."""
    for ranks in (2, 5, 8, 64):
        load = ExpertLoad(ranks, seed=3)
        rows = load.rows(72)
        assert [len(layer) for layer in rows] == [ranks] * len(SAMPLED_LAYERS)
        assert [sum(layer) for layer in rows] == [72 * TOP_K] * len(SAMPLED_LAYERS)
    assert ExpertLoad(8, 0).rows(0) == [[0] * 8] * len(SAMPLED_LAYERS)


def test_experts_are_healthily_uneven():
    """A healthy balancedness of decode batches lies between 0.75 and 0.9: a batch is small, and chance uneven."""
    load = ExpertLoad(8, seed=3)
    assert 0.75 < statistics.mean(b for _ in range(200) if (b := balancedness(load.rows(72))) is not None) < 0.9


def test_chance_alone_shrinks_with_the_batch():
    """Equal experts: the spread of a card's share is that of a coin toss, sqrt((1 - 1/8) * 8 / copies) of the mean."""
    load = ExpertLoad(8, 5, Experts(skew=0, drift=0))
    for tokens in (72, 7200):
        copies = tokens * TOP_K
        first = [layer[0] / (copies / 8) for _ in range(2000) for layer in load.rows(tokens)]
        assert statistics.mean(first) == pytest.approx(1, abs=0.02)
        assert statistics.stdev(first) == pytest.approx((7 / copies) ** 0.5, rel=0.1)


def test_more_skew_is_less_balance_and_placement_gives_it_back():
    """Popularity that lasts hurts where experts lie in order; dealt by popularity it hurts hardly at all."""
    flat, skewed, very = (mean_balance(Experts(skew=s, drift=0, placement="in_order")) for s in (0, 0.5, 1.5))
    assert flat > 0.98 > skewed > very
    assert mean_balance(Experts(skew=0.5, drift=0)) > 0.97


def test_what_drifts_no_placement_can_level():
    """The traffic's mix moves after experts were placed: its spread over 32 experts a card stays, and changes with time."""
    assert mean_balance(Experts(skew=0.5, drift=0)) > mean_balance(Experts(skew=0.5, drift=0.8)) + 0.05
    load = ExpertLoad(8, 2, Experts(skew=0, drift=0.5))
    early = np.array(load.rows(100_000))
    for _ in range(2000):
        load.rows(1)
    late = np.array(load.rows(100_000))
    assert np.abs(late - early).max() > 0.05 * early.mean()


def test_copies_go_to_the_busiest_experts():
    """By hand: 8, 4, 1, 1 with two further copies: the first gets one (4 each), then it ties with the second and comes first."""
    assert placement.replicas(np.array([8.0, 4, 1, 1]), 1).tolist() == [2, 1, 1, 1]
    assert placement.replicas(np.array([8.0, 4, 1, 1]), 2).tolist() == [3, 1, 1, 1]
    assert placement.replicas(np.array([9.0, 8, 1, 1]), 2).tolist() == [2, 2, 1, 1]


def test_copies_share_their_experts_load():
    """An expert with two copies sends half of its tokens to each of two cards; a card holds as many copies as any other."""
    copies = np.array([2, 1, 1])
    parts = placement.balanced(np.array([4.0, 1, 1]), copies, 2)
    assert parts[0].tolist() == [0.5, 0.5]
    assert parts.sum(axis=1).tolist() == [1, 1, 1]
    assert (np.array([4.0, 1, 1]) @ parts).tolist() == [3, 3]
    in_order = placement.in_order(copies, 2)  # slots 0 1 | 2 0
    assert in_order.tolist() == [[0.5, 0.5], [1, 0], [0, 1]]


@pytest.mark.parametrize("ranks", [2, 5, 8, 64])
@pytest.mark.parametrize("redundant", [0, 7, 64])
def test_cards_hold_equal_numbers_of_experts(ranks, redundant):
    """Every expert is held, its parts add up to one, and cards differ by one copy at most."""
    popularity = np.random.default_rng(ranks).lognormal(0, 1, EXPERTS)
    copies = placement.replicas(popularity, redundant)
    assert copies.sum() == EXPERTS + redundant
    for parts in (placement.balanced(popularity, copies, ranks), placement.in_order(copies, ranks)):
        assert parts.sum(axis=1) == pytest.approx(np.ones(EXPERTS))
        held = np.rint((parts * copies[:, None]).sum(axis=0))
        assert held.max() - held.min() <= 1


def test_redundant_experts_level_what_one_card_cannot_hold():
    """One expert with a fifth of all tokens: its card has at least that, 1.6 fair shares of 8; with 7 copies more every card has one."""
    popularity = np.ones(EXPERTS)
    popularity[17] = 0.25 * 255  # a fifth of the total
    popularity /= popularity.sum()

    def worst(redundant: int) -> float:
        copies = placement.replicas(popularity, redundant)
        return float((popularity @ placement.balanced(popularity, copies, 8)).max() * 8)

    assert worst(0) >= 1.6
    assert worst(7) < 1.05


def test_a_hotspot_takes_its_share_and_goes_away():
    """The hot card gets exactly what it was given, the others divide the rest as before."""
    load = ExpertLoad(8, seed=3)
    load.concentrate(5, 0.5)
    rows = load.rows(1000)
    assert [layer[5] for layer in rows] == [4000, 4000]
    assert [sum(layer) for layer in rows] == [8000, 8000]
    assert hottest(rows) == 4000
    assert balancedness(rows) == pytest.approx(0.25)
    load.concentrate(5, None)
    assert hottest(load.rows(1000)) < 1500


def test_balancedness_by_hand():
    """Mean over layers of mean / max; nothing routed says nothing."""
    assert balancedness([[4, 4], [2, 6]]) == pytest.approx((1 + 4 / 6) / 2)
    assert balancedness([[0, 0], [0, 0]]) is None


def test_hot_experts_cost_time_in_one_dispatch_and_only_waste_in_the_other():
    """3.5 fair shares on one card: a quarter more step time with `normal`, less than 2 % with the fixed shape of `low_latency`."""
    fair = 72 * TOP_K / 8
    usual, hot = [[fair] * 8], [[fair * 3.5, *[fair * 4.5 / 7] * 7]]
    normal, fixed = Roofline(), Roofline(dispatch_mode="low_latency")
    assert 1.2 < normal.step(DECODES, hot) / normal.step(DECODES, usual) < 1.5
    assert 1.0 <= fixed.step(DECODES, hot) / fixed.step(DECODES, usual) < 1.02
    assert fixed.experts(0, prefill=False) == fixed.experts(fair, prefill=False)  # paid for, and empty


def test_a_step_with_prefill_is_dispatched_by_the_count_in_either_mode():
    """The fixed shape is for decode batches: thousands of rows follow the hottest card as ever."""
    works = [Work(prefill_tokens=1024, prefill_pairs=524_800, graph=False), *DECODES[1:]]
    rows = [[1087.0] * 8]
    assert Roofline(dispatch_mode="low_latency").step(works, rows) == Roofline().step(works, rows)


def test_impossible_experts_are_refused():
    """A spread below zero or a negative number of copies is named."""
    with pytest.raises(ValueError, match="redundant -1"):
        Experts(redundant=-1)


def test_cards_without_experts_are_refused():
    """Of 256 experts 300 cards cannot have one each: 44 further copies are needed, and are named; a dense model needs none."""
    with pytest.raises(ValueError, match=r"300 ranks for 256 experts and 43 further copies: 1 cards .* to 44 or more, or take 299 ranks"):
        ClusterConfig(ranks=300, experts=Experts(redundant=43))
    assert ClusterConfig(ranks=300, experts=Experts(redundant=44)).ranks == 300
    assert ClusterConfig(ranks=300, vllm=VllmFlags(moe=False)).ranks == 300
