"""What a past of two minutes says for and against a finding: pools, bursts, caches, drafts, prompts. Windows by arithmetic."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from collector import signals
from diagnose import bursts, lone_prefill
from diagnose.case import Case
from diagnose.engine import diagnose
from diagnose.model import Finding, Healthy, NoData, Severity

EVENLY = dict.fromkeys(range(8), 0.45)


def outcome(window, past, rule):
    return {o.rule: o.outcome for o in diagnose(window, past).outcomes}[rule]


@pytest.mark.parametrize(("requests", "found"), [(1, Finding), (0, Healthy)])
def test_one_retraction_in_half_a_minute_is_a_full_pool(requests, found, plant):
    """1/30 of a request per second is one in the window that the service looks at."""
    window = plant(retracted={2: requests / 30}, seconds=30).window()
    assert isinstance(outcome(window, plant(seconds=120).window(), "kv_pressure"), found)


@pytest.mark.parametrize(("own", "peers", "found"), [(0.97, 0.03, Finding), (0.97, 0.6, Healthy), (0.85, 0.03, Healthy)])
def test_a_full_pool_beside_empty_ones_is_noted_before_it_retracts(own, peers, found, plant):
    """What fills one pool would fit on the peers'; pools that are all full, and one that still has room, are healthy."""
    window = plant().window()
    usage = np.full((8, len(window.edges) - 1), peers)
    usage[2] = own
    said = outcome(replace(window, values={**window.values, signals.KV_USAGE: usage}), plant().window(), "kv_pressure")
    assert isinstance(said, found)
    if isinstance(said, Finding):
        assert (said.ranks, said.severity, said.share.high) == ((2,), Severity.NOTE, 0.0)


def test_prompts_at_the_end_of_a_window_do_not_hide_lost_graphs(plant):
    """All passes run eagerly for 12 s; in the last third eight ranks prefill in half of their steps and touch all but .5^8 of the passes.
    They leave nothing to show there, and what went before decides; a last third of replayed graphs clears it."""
    window = plant(eager=1.0).window()
    columns = len(window.edges) - 1
    late = np.arange(columns) >= 2 * columns // 3
    passes = window.values[signals.EAGER_STEPS] + window.values[signals.GRAPH_STEPS]
    own = np.where(late, 0.5 * passes, passes)
    busy = {**window.values, signals.EAGER_STEPS: own, signals.GRAPH_STEPS: 0.0 * own}
    assert isinstance(outcome(replace(window, values=busy), plant().window(), "graph_fallback"), Finding)
    back = {**window.values, signals.EAGER_STEPS: np.where(late, 0.0, passes), signals.GRAPH_STEPS: np.where(late, passes, 0.0)}
    assert isinstance(outcome(replace(window, values=back), plant().window(), "graph_fallback"), Healthy)


@pytest.mark.parametrize(("swing", "burst"), [(7.0, True), (6.0, False)])
def test_a_burst_gives_back_a_third_of_its_excess(swing, burst):
    """30 requests against the peers' 10 are 20 too many: of requests that stay a few come and go."""
    assert bursts.is_burst(bursts.Burst(30.0, 10.0, swing, 2.0, 1.0), 2.9, 0.4) is burst


@pytest.mark.parametrize(("held", "every", "crowd"), [(21.0, 5.0, True), (21.0, 2.0, False), (15.0, 5.0, False)])
def test_a_crowd_is_a_burst_where_pages_are_too_far_apart(held, every, crowd, plant):
    """21 requests beside 10 are 11 more, 3.5 times the root of 10: a burst each 5 s looks so on pages each 5 s, on nearer ones it swings.
    15 are half as many more as a lost cache may hold."""
    window = plant(running=tuple(held if r == 2 else 10.0 for r in range(64))).window()
    wide = replace(window, edges=window.edges[0] + every * (window.edges - window.edges[0]))
    assert bursts.is_crowd(wide, 2, 2.9) is crowd


def test_uncached_prompts_of_a_crowd_are_a_burst(scenes):
    """The rank finds nothing in its cache: with as many requests as its peers it lost it, with three times as many they came there."""
    lost, past = scenes["prefix_cache_skew"], scenes["healthy"].window()
    many = replace(
        lost, running=tuple(24.0 if r == 2 else 8.0 for r in range(64)), length=tuple(2000.0 if r == 2 else 6000.0 for r in range(64))
    )
    for plain, cause in ((lost, "prefix_cache_skew"), (many, "burst_misrouted")):
        window = plain.window()
        wide = replace(window, edges=window.edges[0] + 5.0 * (window.edges - window.edges[0]))
        found = {o.rule: o.outcome for o in diagnose(wide, past).outcomes}
        assert isinstance(found[cause], Finding), cause
        assert sum(isinstance(found[c], Finding) for c in ("prefix_cache_skew", "burst_misrouted")) == 1
    said = found["burst_misrouted"]
    assert isinstance(said, Finding)
    assert "too far apart" in said.summary


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
