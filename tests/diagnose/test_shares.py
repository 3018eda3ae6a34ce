"""What each repair gives back: shares against the plant's own counterfactual, mixtures, and what cannot be told apart."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from collector import signals
from diagnose import late_host
from diagnose.engine import diagnose
from diagnose.model import Class, Severity, Share, Verdict
from diagnose.rules import Limits

LONG = tuple(100_000.0 if r == 0 else 6000.0 for r in range(64))
CROWD = tuple(120.0 if r == 6 else 8.0 for r in range(64))

PARTS: dict[str, dict[str, Any]] = {
    "context_length_skew": {"length": LONG},
    "request_count_skew": {"running": CROWD},
    "long_prefill": {"prefill": {2: 0.7}, "cached": {2: 0.0}, "prompts": {2: 40_000.0}},
    "host_cpu_starved": {"delay": {5: 0.120}},
    "expert_hotspot": {"experts": 0.015, "balancedness": 0.3, "hot": 4},
}
MIXTURES = list(itertools.combinations(PARTS, 2))


def share_of(found: Verdict) -> Share:
    assert found.share is not None
    return found.share


def causes(verdict) -> dict[str, tuple[int, ...]]:
    return {one.cause: one.ranks for one in (verdict, *verdict.also)}


@pytest.mark.parametrize(("one", "other"), MIXTURES)
def test_a_mixture_names_both_causes_on_their_ranks(one, other, plant, culprits):
    """Each pair of causes, with a past and the device timer: both are named, each on its rank."""
    window = plant(**PARTS[one], **PARTS[other]).window()
    assert causes(diagnose(window, plant().window()).verdict) == {one: culprits[one], other: culprits[other]}


@pytest.mark.parametrize("timer", [True, False])
@pytest.mark.parametrize("past", [True, False])
@pytest.mark.parametrize(("one", "other"), [*MIXTURES, ("expert_hotspot", "graph_fallback")])
def test_shares_add_up_to_the_lockstep_loss(one, other, past, timer, plant):
    """Whatever is known: causes and the unexplained rest make the loss, which is no more than all of the step time, and ranges hold."""
    parts = PARTS | {"graph_fallback": {"base": 0.042, "eager": 1.0}}
    window = plant(**parts[one], **parts[other], timer=timer).window()
    verdict = diagnose(window, replace(plant(), timer=timer).window() if past else None).verdict
    lost = verdict.lost_time
    assert lost.share is not None
    assert lost.share <= 1.0
    assert sum(lost.by_cause.values()) == pytest.approx(lost.share, abs=1e-3)
    for found in (verdict, *verdict.also):
        assert found.share is None or 0.0 <= found.share.low <= found.share.mid <= found.share.high <= 1.0


def test_shares_are_what_repairs_give_back_from_the_largest_down(plant):
    """A late host over long contexts: the host's repair gives back C - D; levelling the contexts then (max - mean) s, both of today's C."""
    sick = plant(**PARTS["host_cpu_starved"], **PARTS["context_length_skew"])
    verdict = diagnose(sick.window(), plant().window()).verdict
    host, load = share_of(verdict), share_of(verdict.also[0])
    assert host.mid == pytest.approx((sick.step_time - sick.device) / sick.step_time, rel=0.05)
    truth = (sick.pairs.max() - sick.pairs.mean()) * sick.pair_cost / sick.step_time
    assert load.low <= truth <= load.high
    assert load.mid == pytest.approx(truth, rel=0.25)


def test_two_causes_of_one_rise_share_it_as_ranges(plant):
    """Hot experts and lost graphs both explain the same longer step: together no more than the rise, each from nothing to all of it."""
    sick = plant(experts=0.015, balancedness=0.3, hot=4, base=0.042, eager=1.0)
    verdict = diagnose(sick.window(), plant().window()).verdict
    assert set(causes(verdict)) == {"expert_hotspot", "graph_fallback"}
    rise = 1.0 - plant().step_time / sick.step_time
    shares = [share_of(found) for found in (verdict, *verdict.also)]
    assert sum(s.mid for s in shares) <= rise + 0.02
    assert all(s.low < 0.05 and s.high > 0.9 * rise for s in shares)


def test_two_kinds_of_load_are_told_apart_and_share_what_levelling_gives(plant):
    """Rank 0 with long contexts and rank 6 with many requests: each rule names its own rank, and the shares are those of one levelling."""
    sick = plant(length=LONG, running=CROWD)
    verdict = diagnose(sick.window(), plant().window()).verdict
    assert causes(verdict) == {"context_length_skew": (0,), "request_count_skew": (6,)}
    truth = (sick.pairs.max() - sick.pairs.mean()) * sick.pair_cost / sick.step_time
    assert sum(share_of(f).mid for f in (verdict, *verdict.also)) == pytest.approx(truth, rel=0.25)
    assert {found.cause: {e.rank for e in found.evidence} for found in (verdict, *verdict.also)} == {
        "context_length_skew": {0},
        "request_count_skew": {6},
    }


def test_a_late_rank_with_the_longest_contexts_is_left_open(plant):
    """Late at the exchange and first in pairs for the whole window, no device timer: both shares are ranges, and an experiment is named."""
    window = plant(delay={0: 0.120}, length=LONG, timer=False).window()
    verdict = diagnose(window).verdict
    shares = {found.cause: found for found in (verdict, *verdict.also)}
    host, load = shares["host_cpu_starved"], shares["context_length_skew"]
    assert share_of(host).low == 0.0
    assert share_of(load).high >= share_of(load).low + share_of(host).high / 2
    assert "move some of it away" in host.would_tell
    assert host.would_tell == load.would_tell


def test_the_device_timer_tells_a_late_host_from_its_load(plant):
    """The same rank with the timer: devices stood idle, so it is the host, and its share is no range."""
    window = plant(delay={0: 0.120}, length=LONG).window()
    verdict = diagnose(window, plant().window()).verdict
    assert (verdict.cause, verdict.ranks) == ("host_cpu_starved", (0,))
    assert share_of(verdict).low == share_of(verdict).mid


def following(plant, *, delay: float = 0.0):
    """Waits that hold device time: each rank waits for the pairs that the busiest has more, 150 ns each; rank 0 has most on average,
    and rank 3 is `delay` seconds late besides."""
    window = plant(seconds=30, timer=False).window()
    rng = np.random.default_rng(11)
    pairs = 50_000.0 + 25_000.0 * rng.random((8, 30)) + np.where(np.arange(8) == 0, 250_000.0, 0.0)[:, None]
    late = 150e-9 * pairs + np.where(np.arange(8) == 3, delay, 0.0)[:, None]
    rate = window.values[signals.STEPS_ACTIVE].mean()
    wait = (late.max(axis=0) - late + 0.001) * rate
    steps = np.full((8, 30), rate)
    return replace(
        window,
        values={
            **window.values,
            signals.RESIDENT_TOKENS: pairs,
            signals.ATTENTION_PAIRS: pairs * rate,
            signals.STEPS_ACTIVE: steps,
            signals.RECV_WAIT: wait * 0.3,
            signals.SYNC_WAIT: wait * 0.7,
        },
    )


def test_waits_that_follow_pairs_blame_no_host(plant):
    """The rank that waits least is the one with most pairs, and waits follow pairs from second to second: that is load, no host's doing."""
    verdict = diagnose(following(plant)).verdict
    assert verdict.klass is not Class.SINGLE_POINT
    assert not any(found.klass is Class.SINGLE_POINT for found in verdict.also)


def test_a_host_late_beyond_what_its_pairs_explain_is_still_named(plant):
    """Waits follow pairs, but rank 3 is 150 ms later than its level pairs make it: it is named."""
    verdict = diagnose(following(plant, delay=0.150)).verdict
    assert (verdict.klass, verdict.ranks) == (Class.SINGLE_POINT, (3,))


@pytest.mark.parametrize("ranks", [2, 3, 4, 8])
def test_who_waits_least_is_late_in_any_number_of_ranks(ranks, plant):
    """One late rank is named by physics, not by majority."""
    verdict = diagnose(plant(ranks=ranks, delay={1: 0.060}).window(), plant(ranks=ranks).window()).verdict
    assert (verdict.klass, verdict.ranks) == (Class.SINGLE_POINT, (1,))


def test_half_of_the_ranks_late_is_less_sure_than_a_few(plant):
    """Two of four, four of eight: named together as a node, with less confidence than three of eight."""
    few = diagnose(plant(delay=dict.fromkeys(range(3), 0.060)).window(), plant().window()).verdict
    for ranks in (4, 8):
        late = dict.fromkeys(range(ranks // 2), 0.060)
        verdict = diagnose(plant(ranks=ranks, delay=late).window(), plant(ranks=ranks).window()).verdict
        assert (verdict.cause, verdict.ranks) == ("slow_node", tuple(late))
        assert verdict.confidence < few.confidence


@pytest.mark.parametrize("late", [5, 7, 8])
def test_most_or_all_ranks_late_blames_none_of_them(late, plant):
    """Five, seven or all of eight ranks late: nobody is named, and the group's rise over its past is not called healthy."""
    verdict = diagnose(plant(delay=dict.fromkeys(range(late), 0.060)).window(), plant().window()).verdict
    assert verdict.klass is Class.INSUFFICIENT
    assert verdict.ranks == ()


def test_two_suspects_of_four_without_waits_are_left_open(plant):
    """Hits of a detector on ranks 1 and 2 of 4 alike, and no waits observed: no rank's host or card is blamed."""
    window = plant(ranks=4, delay={1: 0.060, 2: 0.060}, timer=False).window().without(signals.SYNC_WAIT, signals.RECV_WAIT)
    verdict = diagnose(window, plant(ranks=4, timer=False).window()).verdict
    assert verdict.klass is Class.INSUFFICIENT
    assert verdict.ranks == ()


@pytest.mark.parametrize("cause", ["host_cpu_starved", "context_length_skew", "long_prefill"])
@pytest.mark.parametrize("seen", [slice(0, 20), slice(20, 40)], ids=["leaves", "joins"])
def test_a_healthy_rank_that_joins_or_leaves_changes_no_verdict(cause, seen, scenes, culprits):
    """Rank 7 is there for one half of the window only: the culprit is the same, and rank 7 is not it."""
    window = replace(scenes[cause], seconds=40).window()
    values = {}
    for name, found in window.values.items():
        there = np.full(found.shape, np.nan)
        there[..., seen] = found[..., seen]
        values[name] = np.vstack([found[:7], there[7:]]) if len(found) == 8 else found
    verdict = diagnose(replace(window, values=values), scenes["healthy"].window()).verdict
    assert (verdict.cause, verdict.ranks) == (cause, culprits[cause])


def test_a_late_host_beside_a_larger_cause_is_told_by_what_it_costs(plant):
    """A host of 4 ms late by 41.8 while hot experts make the device take 44.7: overlap leaves 1.1 of 45.8 ms, 2.4 %, told as a note."""
    sick = plant(delay={5: 0.0418}, experts=0.008, balancedness=0.3, hot=4)
    verdict = diagnose(sick.window(), plant().window()).verdict
    found = {other.cause: other for other in (verdict, *verdict.also)}
    assert found["host_cpu_starved"].ranks == (5,)
    assert found["host_cpu_starved"].severity is Severity.NOTE
    assert share_of(found["host_cpu_starved"]).mid == pytest.approx(1.0 - sick.device / sick.plain, abs=0.005)
    assert verdict.cause == "expert_hotspot"


@pytest.mark.parametrize(("mid", "told"), [(0.06, None), (0.05, None), (0.04, Severity.TICKET), (0.02, Severity.NOTE)])
def test_only_a_late_host_that_costs_a_twentieth_wakes_someone(mid, told):
    limit = Limits(late_host.THRESHOLDS)
    assert late_host.severity(Share(mid, mid, mid), limit) is told
