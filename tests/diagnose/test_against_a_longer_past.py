"""What a past of two minutes says for and against a finding: pools, bursts, caches, drafts, prompts. Windows by arithmetic."""

from __future__ import annotations

from dataclasses import replace

import pytest

from diagnose import lone_prefill
from diagnose.case import Case
from diagnose.engine import diagnose
from diagnose.model import Finding, Healthy, NoData

EVENLY = dict.fromkeys(range(8), 0.45)


def outcome(window, past, rule):
    return {o.rule: o.outcome for o in diagnose(window, past).outcomes}[rule]


@pytest.mark.parametrize(("requests", "found"), [(1, Finding), (0, Healthy)])
def test_one_retraction_in_half_a_minute_is_a_full_pool(requests, found, plant):
    """1/30 of a request per second is one in the window that the service looks at."""
    window = plant(retracted={2: requests / 30}, seconds=30).window()
    assert isinstance(outcome(window, plant(seconds=120).window(), "kv_pressure"), found)


def test_a_burst_is_held_against_bursts_not_against_long_prompts(scenes):
    """A past in which another rank computed long prompts says nothing against requests that come at once; one with such a burst does."""
    sick = scenes["burst_misrouted"].window()
    prompts = replace(scenes["long_prefill"], prefill={5: 0.7}, cached={5: 0.0}, prompts={5: 40_000.0}, seconds=120).window()
    said = outcome(sick, prompts, "burst_misrouted")
    assert isinstance(said, Finding)
    assert said.ranks == (2,)
    assert isinstance(outcome(sick, sick, "burst_misrouted"), Healthy)


def test_a_hit_ratio_that_no_rank_of_the_past_had_is_news(scenes):
    """Rank 5 computed long prompts in the past, as uneven as now. Had it found them in its cache, a rank that finds nothing is new; had it
    not, this is how the traffic is."""
    sick = scenes["prefix_cache_skew"].window()
    long = replace(scenes["long_prefill"], prefill={5: 0.7}, prompts={5: 40_000.0}, seconds=120)
    known = outcome(sick, replace(long, cached={5: 0.9}).window(), "prefix_cache_skew")
    assert isinstance(known, Finding)
    assert known.ranks == (2,)
    said = outcome(sick, replace(long, cached={5: 0.0}).window(), "prefix_cache_skew")
    assert isinstance(said, Healthy)
    assert "past" in said.why


def test_drafts_of_few_requests_are_held_against_the_past(plant):
    """Two requests that get 1.1 tokens a step may be two odd prompts; not where the worst of eight ranks with two got 2.5."""
    few = (2.0,) * 64
    sick = plant(accept={4: 1.1}, running=few).window()
    said = outcome(sick, plant(accept={4: 2.5}, running=few, seconds=120).window(), "speculation_skew")
    assert isinstance(said, Finding)
    assert said.ranks == (4,)
    for past in (None, plant(accept={6: 1.3}, running=few, seconds=120).window()):
        assert isinstance(outcome(sick, past, "speculation_skew"), Healthy)


def test_a_rank_that_does_nothing_but_prefill_stands_out_of_busy_ones(plant):
    """0.85 of the time against the peers' 0.45 is 1.9 times as much, and 0.35 above the mean: seven times the past's 0.05; a past with
    0.1 leaves it at three and a half, which healthy bursts reach."""
    sick = plant(prefill={**EVENLY, 2: 0.85}, prompts={2: 40_000.0}).window()
    said = outcome(sick, plant(prefill={**EVENLY, 5: 0.45 + 0.05 * 8 / 7}, seconds=120).window(), "long_prefill")
    assert isinstance(said, Finding)
    assert said.ranks == (2,)
    assert isinstance(outcome(sick, plant(prefill={**EVENLY, 5: 0.45 + 0.1 * 8 / 7}, seconds=120).window(), "long_prefill"), Healthy)


def test_how_far_a_rank_is_apart_is_a_multiple_of_the_past(plant):
    """0.85 against 0.45 on seven ranks is 0.35 above the mean; 0.1 was the most in the past. Where it costs nothing it is not counted."""
    sick = plant(prefill={**EVENLY, 2: 0.85}).window()
    past = plant(prefill={**EVENLY, 5: 0.45 + 0.1 * 8 / 7}, seconds=120).window()
    assert lone_prefill.apart(Case(sick, past)) == pytest.approx(3.5, rel=0.01)
    assert lone_prefill.apart(Case(sick)) == 0.0
    assert lone_prefill.apart(Case(plant(turns=0.6).window(), past)) == 0.0


def test_prompts_in_turn_on_all_ranks_are_the_layouts_unless_one_rank_rose_most(plant, monkeypatch):
    """Whose prompts these are stays open where one rank is three times as far above the mean as any was."""
    sick, past = plant(turns=0.6).window(), plant(seconds=120).window()
    assert isinstance(outcome(sick, past, "prefill_drags_decode"), Finding)
    monkeypatch.setattr(lone_prefill, "apart", lambda case: 3.0)
    said = outcome(sick, past, "prefill_drags_decode")
    assert isinstance(said, NoData)
    assert "3.0 times as far above the mean" in said.why
