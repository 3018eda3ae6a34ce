"""The cards that are not there: how long their steps take, when they start, and where the tokens go."""

from __future__ import annotations

import itertools
import statistics

import pytest

from workload.config import ClusterConfig
from workload.device import Work
from workload.device.computing import Meets
from workload.device.experts import TOP_K, ExpertLoad
from workload.device.roofline import Roofline
from workload.device.virtual import VirtualCards
from workload.wire import Done, Launch, Meet

ROOFLINE = Roofline()
# 9 requests of 6K on every rank: what the default traffic keeps running
USUAL = [Work(decode_tokens=9, decode_pairs=9 * 6000)] * 8
USUAL_ROWS = 72 * TOP_K / 8


def level(rows: float) -> list[list[float]]:
    """As many copies to each of 8 cards, in one layer that stands for all."""
    return [[rows] * 8]


def test_kv_read_of_the_reference_case():
    """576 bytes a token and layer, 78 layers: 10.3 GB for 229,376 pairs against 1.47 GB for 32,768."""
    assert ROOFLINE.kv_read(1) == 44_928
    assert ROOFLINE.kv_read(229_376) == pytest.approx(10.3e9, rel=0.002)
    assert ROOFLINE.kv_read(32_768) == pytest.approx(1.47e9, rel=0.002)


def test_a_longer_attention_is_paid_once_per_step_and_not_once_per_layer_of_a_step():
    """The reference case costs the group the time of reading 8.83 GB more: 2.9 ms at 3 TB/s, and not 78 times that."""
    usual = [Work(decode_tokens=4, decode_pairs=32_768)] * 8
    skewed = [Work(decode_tokens=4, decode_pairs=229_376), *usual[1:]]
    extra = ROOFLINE.step(skewed, level(32)) - ROOFLINE.step(usual, level(32))
    assert extra == pytest.approx((229_376 - 32_768) * 44_928 / 3.0e12)
    assert extra == pytest.approx(78 * (ROOFLINE.attention(skewed[0]) - ROOFLINE.attention(usual[0])))


def test_the_slowest_card_sets_the_pace_of_every_layer():
    """One rank's pairs lengthen the step; the same pairs on all ranks lengthen it no further."""
    long = Work(decode_tokens=9, decode_pairs=800_000)
    one, all_ = [long, *USUAL[1:]], [long] * 8
    assert ROOFLINE.step(one, level(USUAL_ROWS)) > ROOFLINE.step(USUAL, level(USUAL_ROWS))
    assert ROOFLINE.step(one, level(USUAL_ROWS)) == ROOFLINE.step(all_, level(USUAL_ROWS))


def test_an_idle_card_takes_part_in_every_step():
    """An idle batch costs its card the weights and the collectives, and the group no more than its busiest card."""
    assert ROOFLINE.step([Work(), *USUAL[1:]], level(USUAL_ROWS)) == ROOFLINE.step(USUAL, level(USUAL_ROWS))
    assert ROOFLINE.step([Work()] * 8, level(0)) > 84e9 / 4.8e12  # no step is shorter than reading the weights at the peak rate


def test_a_usual_decode_step_takes_35_to_42_ms():
    """84 GB of weights at 3 TB/s are 28 ms; the rest is attention, experts' rows and collectives."""
    assert 0.035 < ROOFLINE.step(USUAL, level(USUAL_ROWS * 1.2)) < 0.042


def test_a_chunk_of_prefill_takes_two_to_three_decode_steps():
    """The first 1024 tokens of a prompt on one rank, decodes on all others, without graphs."""
    chunk = Work(prefill_tokens=1024, prefill_pairs=1024 * 1025 // 2, graph=False)
    others = [Work(decode_tokens=9, decode_pairs=54_000, graph=False)] * 7
    rows = (1024 + 63) * TOP_K / 8 * 1.2
    assert 2 < ROOFLINE.step([chunk, *others], level(rows)) / ROOFLINE.step(USUAL, level(USUAL_ROWS * 1.2)) < 3


def test_losing_the_decode_graphs_costs_a_step_its_launches():
    """The same work launched kernel by kernel is 4 ms longer."""
    eager = [Work(9, 54_000, graph=False)] * 8
    assert ROOFLINE.step(eager, level(USUAL_ROWS)) - ROOFLINE.step(USUAL, level(USUAL_ROWS)) == pytest.approx(0.004)


def test_a_hot_expert_card_lengthens_a_decode_step_by_a_quarter():
    """3.5 fair shares on one card instead of 1.2."""
    assert 1.2 < ROOFLINE.step(USUAL, level(USUAL_ROWS * 3.5)) / ROOFLINE.step(USUAL, level(USUAL_ROWS * 1.2)) < 1.4


def launch(step: int, at: float) -> Launch:
    return Launch(step, at, 9, 54_000, 0, 0, graph=True)


def cards(ranks: int = 2) -> VirtualCards:
    return VirtualCards(ClusterConfig(ranks=ranks), ExpertLoad(ranks, 0))


def test_a_step_starts_when_the_last_rank_has_launched_it():
    """The early card waits inside its first collective: its span holds the wait, the late one's does not."""
    group = cards()
    group.launch(0, launch(1, at=100.0))
    assert group.deadline is None
    group.launch(1, launch(1, at=100.5))
    assert group.deadline is not None
    seconds = group.deadline - 100.5
    assert 0.030 < seconds < 0.045
    early, late = group.ended()
    assert (early.span, late.span) == pytest.approx((seconds + 0.5, seconds))


def test_steps_follow_each_other_without_a_gap_or_drift():
    """A step launched in time starts at its predecessor's end, however late anybody looked at the clock."""
    group = cards()
    ends: list[float] = []
    spans: list[Done] = []
    for rank in range(2):
        group.launch(rank, launch(1, at=100.0))
    for step in range(2, 12):
        assert group.deadline is not None
        ends.append(group.deadline)
        for rank in range(2):
            group.launch(rank, launch(step, at=ends[-1] - 0.01))
        spans += group.ended()[:1]
    assert ends[0] - 100.0 + sum(b - a for a, b in itertools.pairwise(ends)) == pytest.approx(sum(d.span for d in spans))
    # 1.5 % of noise about the same work
    assert statistics.stdev(d.span for d in spans) < 0.05 * statistics.mean(d.span for d in spans)


def test_a_stretch_lengthens_every_step():
    """As SGLang's /slow_down: the same work, a factor longer."""
    usual, slow = cards(), cards()
    slow.stretch = 1.4
    for group in (usual, slow):
        for rank in range(2):
            group.launch(rank, launch(1, at=10.0))
    assert usual.deadline is not None
    assert slow.deadline is not None
    assert slow.deadline - 10 == pytest.approx(1.4 * (usual.deadline - 10))


def test_ranks_that_launch_different_steps_are_a_bug():
    """A group that is out of step must not go on silently."""
    group = cards()
    group.launch(0, launch(1, at=1.0))
    with pytest.raises(RuntimeError, match="different steps"):
        group.launch(1, launch(2, at=1.0))


def test_cards_on_the_cpu_meet_when_all_have_come():
    """Nobody is told to go on before the last one arrives; the first meet of a step deals all ranks' tokens to experts."""
    meets = Meets(ClusterConfig(ranks=2, device="cpu"), ExpertLoad(2, 0))
    assert meets.arrive(1, Meet(10, first=True)) is None
    met = meets.arrive(0, Meet(5, first=True))
    assert met is not None
    assert sum(met.rows[0]) == 15 * TOP_K
    assert meets.arrive(0, Meet(0, first=False)) is None
    again = meets.arrive(1, Meet(0, first=False))
    assert again is not None
    assert again.rows == met.rows
