"""What traffic does by itself is no finding, and what it hides is said: windows by arithmetic, beside a past that had the like."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from collector import signals
from diagnose import graphs, lockstep, lone_prefill, prefill_drag
from diagnose.case import Case
from diagnose.engine import diagnose
from diagnose.model import Class, Finding, Healthy, NoData, Share
from diagnose.rules import Limits, expert_hotspot

FEW = (2.0, *(0.0,) * 63)


def outcome(window, past, rule):
    return {o.rule: o.outcome for o in diagnose(window, past).outcomes}[rule]


def times(window, **factors):
    """The window with signals multiplied."""
    return replace(window, values={**window.values, **{name: window.values[name] * factor for name, factor in factors.items()}})


def test_idle_steps_as_in_the_past_are_how_an_engine_is_used(plant):
    """Two requests on one of eight ranks leave 7/8 of the steps idle: new after a busy past, no news where it was so for some seconds."""
    idle = plant(running=FEW).window()
    assert isinstance(outcome(idle, plant().window(), "idle_lockstep"), Finding)
    steps = idle.values[signals.STEPS_ACTIVE] + idle.values[signals.STEPS_IDLE]
    idler = replace(idle, values={**idle.values, signals.STEPS_ACTIVE: 0.01 * steps, signals.STEPS_IDLE: 0.99 * steps})
    assert isinstance(outcome(idle, idler, "idle_lockstep"), Healthy)


def test_a_note_is_no_answer_while_a_late_rank_could_not_be_seen(plant):
    """Idle ranks and no waits read: whether a rank is late is open, so the note stands beside insufficient evidence."""
    window = plant(running=FEW).window()
    whole, part = diagnose(window).verdict, diagnose(window.without(signals.SYNC_WAIT)).verdict
    assert (whole.klass, whole.cause) == (Class.LOAD, "idle_lockstep")
    assert part.klass is Class.INSUFFICIENT
    assert [other.cause for other in part.also] == ["idle_lockstep"]


def test_snapshots_are_stale_by_the_steps_that_they_span(plant):
    """A snapshot 11 s old: stale where steps take 37 ms, but 20 steps of 0.54 s, where one comes every 15, are not."""
    assert isinstance(outcome(plant(frozen={6: 11.0}).window(), None, "stale_ledger"), Finding)
    slow = plant(frozen={6: 11.0}, group=14.5)
    assert slow.step_time * 20 == pytest.approx(11.0, rel=0.05)
    assert isinstance(outcome(slow.window(), None, "stale_ledger"), Healthy)


def test_snapshots_are_stale_by_the_slowest_pace_of_steps(plant):
    """Steps of 37 ms for most of the window and of 0.54 s at its end: a snapshot 11 s old may span 20 of those."""
    window = plant(frozen={6: 11.0}).window()
    names = (signals.STEPS_ACTIVE, signals.STEPS_IDLE)
    slower = np.ones(len(window.edges) - 1)
    slower[-4:] = 1 / 14.5
    assert isinstance(outcome(times(window, **dict.fromkeys(names, slower)), None, "stale_ledger"), Healthy)


def test_graphs_lost_to_prompts_before_the_ranks_fell_idle_are_not_lost(plant):
    """For a quarter of the window each of eight ranks prefills in 0.3 of its steps, so 1 - .7^8 = 94 % of decode passes run eagerly; then
    seven ranks only step along and prompts have ended. What passes there were, prompts touched."""
    window = plant().window()
    columns = len(window.edges) - 1
    busy = np.arange(columns) < columns // 4
    rate = np.full((8, columns), 25.0)
    active = np.where(busy, rate, np.where(np.arange(8)[:, None] == 0, rate, 0.0))
    passes = np.where(busy, 0.7 * rate, active)
    eager = np.where(busy, (1 - 0.7**8) * passes, 0.0)
    values = {**window.values, signals.STEPS_ACTIVE: active, signals.STEPS_IDLE: rate - active}
    mixed = replace(window, values={**values, signals.EAGER_STEPS: eager, signals.GRAPH_STEPS: passes - eager})
    assert graphs.eager_share(mixed) == pytest.approx(1 - 0.7**8)
    assert graphs.prefill_expected(mixed) == pytest.approx(1 - 0.7**8)
    assert isinstance(outcome(mixed, plant().window(), "graph_fallback"), Healthy)


def test_contexts_that_push_requests_out_are_a_full_pool(plant):
    """Contexts 17 times as long that fill one rank's pool: kv_pressure, at what levelling them would give back."""
    length = tuple(100_000.0 if r == 2 else 6000.0 for r in range(64))
    verdict = diagnose(plant(length=length, retracted={2: 0.5}).window(), plant().window()).verdict
    plain = diagnose(plant(length=length).window(), plant().window()).verdict
    assert (verdict.cause, verdict.ranks, plain.cause) == ("kv_pressure", (2,), "context_length_skew")
    assert verdict.share is not None
    assert plain.share is not None
    assert verdict.share.mid == pytest.approx(plain.share.mid, rel=0.01)
    assert "context_length_skew" not in {other.cause for other in verdict.also}


def test_prompts_of_more_requests_are_not_the_layouts_doing(plant):
    """Prompts in turn on all ranks, each as long as in the past and ten times as many: whether they stay is to be seen."""
    sick, past = plant(turns=0.6).window(), plant().window()
    assert isinstance(outcome(sick, past, "prefill_drags_decode"), Finding)
    grown = Case(sick, past).prefill_growth
    assert grown is not None
    more = times(sick, **{signals.FIRST_TOKENS: grown.each})
    said = outcome(more, past, "prefill_drags_decode")
    assert isinstance(said, NoData)
    assert "requests as long as ever" in said.why
    assert outcome(sick.without(signals.FIRST_TOKENS), past.without(signals.FIRST_TOKENS), "prefill_drags_decode").missing == (
        signals.FIRST_TOKENS,
    )


@pytest.mark.parametrize(
    ("tokens", "scatter", "grew", "may"),
    [(2.0, 1.0, True, True), (1.5, 0.3, True, True), (1.5, 0.5, False, True), (1.3, 0.3, False, False)],
)
def test_less_work_is_enough_after_a_calm_past(tokens, scatter, grew, may):
    """Twice the past's most prompts, or 1.4 times where they cost much and the past scattered little; else what costs much is left open."""
    limit = Limits(prefill_drag.THRESHOLDS)
    found = prefill_drag.Growth(Share(0.5, 0.4, 0.6), 0.5, tokens, scatter, 2.0)
    assert prefill_drag.grew(found, limit) is grew
    assert prefill_drag.may(found, limit) is may


def test_graphs_lost_since_the_past_are_told_whatever_prompts_hide(plant):
    """Launches of 0.5 ms in a step of 37: too little to be blamed by its size, and lost since the past all the same."""
    lost, past = plant(base=0.0365, eager=1.0).window(), plant().window()
    said = outcome(lost, past, "graph_fallback")
    assert isinstance(said, Finding)
    assert said.share.low == 0.0
    assert isinstance(outcome(lost, plant(eager=1.0).window(), "graph_fallback"), Healthy)


def test_a_few_requests_make_any_experts_look_uneven(plant):
    """Eight requests put eight rows on each of eight cards, the fullest has sqrt(2 x 8 ln 8) more: 0.58, and 0.67 of it is the limit."""
    one = plant(running=(1.0,) * 64, experts=0.02, balancedness=0.42)
    chance = 8.0 / (8.0 + math.sqrt(16.0 * math.log(8.0)))
    assert 0.67 * chance == pytest.approx(0.389, abs=0.001)
    case = Case(times(one.window(), **{signals.ATTENTION_TOKENS: 8.0}), plant(running=(1.0,) * 64).window())
    assert isinstance(expert_hotspot.expert_hotspot.ask(case), Healthy)
    hot = replace(one, balancedness=0.36).window()
    said = expert_hotspot.expert_hotspot.ask(Case(times(hot, **{signals.ATTENTION_TOKENS: 8.0}), plant(running=(1.0,) * 64).window()))
    assert isinstance(said, Finding)


def test_prompts_on_one_rank_are_held_against_the_pasts_most_uneven_seconds(plant):
    """Six tenths of the time more than the mean: new after an even past; where a rank prefilled for three seconds on end, it is as ever."""
    sick = plant(prefill={2: 0.7}, prompts={2: 40_000.0}, cached={2: 0.0}).window()
    past = plant(seconds=30).window()
    assert isinstance(outcome(sick, past, "long_prefill"), Finding)
    busy = past.values[signals.PREFILL_BUSY].copy()
    busy[5, 9:12] = 1.0
    uneven = replace(past, values={**past.values, signals.PREFILL_BUSY: busy})
    assert isinstance(outcome(sick, uneven, "long_prefill"), Healthy)


def test_a_rank_that_a_burst_leaves_last_has_no_longer_prompts(plant):
    """One rank prefills most with as many prompt tokens per request as ever: they wait in line there; how many is not known: left open."""
    sick, past = plant(prefill={2: 0.7}, prompts={2: 40_000.0}, cached={2: 0.0}).window(), plant(seconds=30).window()
    longer = prefill_drag.longer(sick, past)
    assert longer == pytest.approx((7 * 8000.0 * 0.02 + 40_000.0) / (8 * 8000.0 * 0.02))
    assert isinstance(outcome(times(sick, **{signals.FIRST_TOKENS: longer}), past, "long_prefill"), Healthy)
    said = outcome(sick.without(signals.FIRST_TOKENS), past, "long_prefill")
    assert isinstance(said, NoData)
    assert said.missing == (signals.FIRST_TOKENS,)


def test_chance_moves_what_comes_by_its_root(plant):
    """Four times the prompt tokens on all ranks are twice as uneven by chance."""
    past = plant().window()
    assert lone_prefill._grown(Case(times(past, **{signals.PREFILL_TOKENS: 4.0}), past)) == pytest.approx(2.0)
    assert lone_prefill._grown(Case(times(past, **{signals.PREFILL_TOKENS: 0.5}), past)) == 1.0
    assert lone_prefill._grown(Case(past)) == 1.0


def test_a_late_rank_whose_cost_nothing_measures_is_left_open(plant):
    """20 ms late in each exchange, steps as long as before, and neither timer nor load says if that is so by chance."""
    names = (signals.ATTENTION_TOKENS, signals.PREFILL_BUSY)
    window, past = (plant(delay=d, timer=False).window().without(*names) for d in ({5: 0.020}, {}))
    said = outcome(window, past, "slow_rank")
    assert isinstance(said, NoData)
    assert said.missing == (signals.FORWARD_TIME,)


def test_a_group_that_stands_now_and_then_has_no_late_hosts_by_that(plant):
    """Devices idle because nobody asks look like hosts that are all late: not said."""
    late = plant(delay=dict.fromkeys(range(8), 0.060)).window()
    assert lockstep.unwaited(late) == pytest.approx(0.064 - plant().device, rel=0.05)
    standing = times(late, **{signals.DECODE_TIME: 0.9})
    assert lockstep.unwaited(standing) is None
    assert np.isfinite(lockstep.host_exposed(standing) or 0.0)
