"""Why ranks prefill: one rank for long, one rank for a moment, requests that come at once, all ranks in turn. Windows by arithmetic."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from collector import signals
from diagnose import blocks, bursts, prefill_drag
from diagnose.engine import diagnose
from diagnose.model import Class, Finding, Healthy, NoData, Severity
from tests.diagnose.conftest import as_stated

LONE = {"long_prefill", "prefix_cache_skew", "burst_misrouted", "kv_pressure", "prefill_drags_decode"}


def outcome(window, past, rule):
    return {o.rule: o.outcome for o in diagnose(window, past).outcomes}[rule]


def for_a_while(window, rank, until):
    """The window with the prefill of a rank ending after `until` columns, as much in all."""
    busy = window.values[signals.PREFILL_BUSY].copy()
    share = busy[rank, 0] * busy.shape[1] / until
    busy[rank] = np.where(np.arange(busy.shape[1]) < until, min(share, 1.0), 0.0)
    return replace(window, values={**window.values, signals.PREFILL_BUSY: busy})


def test_exactly_one_rule_speaks_for_one_ranks_prefill(scenes):
    """Long prompts, lost caches, retractions, bursts and prompts in turn each get one finding among the rules on prefill."""
    for cause in LONE:
        said = diagnose(scenes[cause].window(), scenes["healthy"].window()).outcomes
        assert {o.rule for o in said if isinstance(o.outcome, Finding)} & LONE == {cause}


@pytest.mark.parametrize("cause", ["long_prefill", "prefix_cache_skew"])
def test_prefill_that_fills_one_part_of_the_window_is_no_lasting_deal(cause, plant, scenes):
    """A rank that prefills for 3 of 12 seconds leads in one block of four: a long prompt, whatever the past was."""
    brief = for_a_while(replace(scenes[cause], prefill={2: 0.25}).window(), 2, 3)
    for past in (None, plant().window()):
        said = outcome(brief, past, cause)
        assert isinstance(said, Healthy)
        assert "25%" in said.why


def test_a_past_with_the_like_of_it_clears_a_prefilling_rank(scenes):
    """Half a minute in which another rank prefilled as much shows that this is how the traffic is."""
    sick = scenes["long_prefill"].window()
    other = replace(scenes["long_prefill"], prefill={5: 0.7}, cached={5: 0.0}, prompts={5: 40_000.0}, seconds=30).window()
    said = outcome(sick, other, "long_prefill")
    assert isinstance(said, Healthy)
    assert "in the past" in said.why


@pytest.mark.parametrize(("seconds", "severity"), [(12, Severity.NOTE), (24, Severity.TICKET)])
def test_a_short_window_without_a_past_only_notes_a_prefilling_rank(seconds, severity, scenes):
    """Coding agents make one rank prefill for ten seconds and more: below 20 s and without a past nobody is sent for."""
    verdict = diagnose(replace(scenes["long_prefill"], seconds=seconds).window()).verdict
    assert (verdict.cause, verdict.severity) == ("long_prefill", severity)


def test_a_burst_needs_request_counts_to_be_told_from_long_prompts(scenes):
    """Without counts the class and the rank stay, the cause is what prefill alone says, with less confidence."""
    window, past = scenes["burst_misrouted"].window(), scenes["healthy"].window()
    less = window.without(signals.WAITING), past.without(signals.WAITING)
    whole, part = diagnose(window, past, sure=as_stated).verdict, diagnose(*less, sure=as_stated).verdict
    assert whole.cause == "burst_misrouted"
    assert (part.klass, part.ranks) == (Class.LOAD, (2,))
    assert part.cause != "burst_misrouted"
    assert part.confidence < whole.confidence
    assert isinstance(outcome(window.without(signals.WAITING), past, "burst_misrouted"), NoData)


def test_requests_that_come_at_once_but_cost_nothing_are_no_burst(plant):
    """A burst of cached prompts makes no rank prefill: the counts jump, no step is longer, nobody is blamed."""
    verdict = diagnose(plant(burst={2: 20.0}).window(), plant().window()).verdict
    assert verdict.klass is Class.HEALTHY


def test_a_burst_is_the_swing_against_the_peers(plant):
    """20 requests for two of five seconds on one rank of 8 each: it holds 28, its peers 8, and chance moves root 8."""
    found = bursts.burst(plant(burst={2: 20.0}).window(), 2)
    assert found is not None
    assert (found.peak, found.peers, found.swing) == (28.0, 8.0, 20.0)
    assert found.chance == pytest.approx(8.0**0.5)
    assert bursts.is_burst(found, 2.9, 0.4)


def test_traffic_that_comes_in_bursts_by_itself_is_none(plant):
    """40 requests on a rank while each of the seven others gets 20: 20 more than its peers, yet a ninth of the 180 that came."""
    burst = dict.fromkeys(range(8), 20.0) | {2: 40.0}
    found = bursts.burst(plant(burst=burst).window(), 2)
    assert found is not None
    assert found.swing == 20.0
    assert found.taken == pytest.approx(20.0 / 180.0)
    assert not bursts.is_burst(found, 2.9, 0.4)


def test_a_burst_on_all_ranks_is_none(plant):
    """What comes to all alike swings no rank against its peers."""
    found = bursts.burst(plant(burst=dict.fromkeys(range(8), 20.0)).window(), 2)
    assert found is not None
    assert found.swing == 0.0
    assert not bursts.is_burst(found, 2.9, 0.4)


def test_one_moment_shows_no_burst(plant):
    """A swing needs two moments; unobserved counts give none."""
    window = plant().window()
    assert bursts.burst(window.without(signals.RUNNING), 0) is None
    assert not bursts.is_burst(None, 2.9, 0.4)


def test_the_drag_of_prefill_in_turn_is_what_the_arithmetic_says(plant):
    """Six of ten steps with a prefill of three plain steps: wall step 2.2 plain, so 6/11 of the time is drag."""
    sick = plant(turns=0.6)
    found = prefill_drag.prefill_drag(sick.window())
    assert found is not None
    assert found.touched == pytest.approx(0.6, abs=0.01)
    assert found.prefill_step == pytest.approx(3 * sick.plain, rel=0.1)
    assert found.plain_step == pytest.approx(sick.plain, rel=0.2)
    assert found.share(sick.plain) == pytest.approx(6 / 11, rel=0.1)


def test_prefill_in_turn_is_priced_against_the_past(plant):
    """With a past the share brackets the truth, 1 - plain / wall."""
    share = diagnose(plant(turns=0.6).window(), plant().window()).verdict.share
    assert share is not None
    assert share.mid == pytest.approx(6 / 11, rel=0.1)
    assert share.low <= share.mid <= share.high


def test_prefill_in_turn_without_a_past_is_a_note(plant):
    """The engine may have been built for such traffic: it is told, nobody is sent for, and the confidence says so."""
    verdict = diagnose(plant(turns=0.6).window(), sure=as_stated).verdict
    assert (verdict.cause, verdict.severity, verdict.ranks) == ("prefill_drags_decode", Severity.NOTE, ())
    assert verdict.confidence <= prefill_drag.UNCOMPARED


def test_the_same_prefill_as_ever_is_healthy(plant):
    """A layout that prefilled as much in its healthy past has not changed: no finding."""
    usual = plant(turns=0.6).window()
    assert diagnose(usual, usual).verdict.klass is Class.HEALTHY


def test_a_slower_group_with_the_same_prefill_is_not_blamed_on_it(plant):
    """All cards 1.5 times slower at unchanged prefill: the steps with prefill are longer too, yet prefill is not the cause."""
    slow, past = plant(turns=0.3, group=1.5).window(), plant(turns=0.3).window()
    assert isinstance(outcome(slow, past, "prefill_drags_decode"), Healthy)
    assert diagnose(slow, past).verdict.cause != "prefill_drags_decode"


def test_steps_in_which_nearly_always_somebody_prefills_show_no_plain_step(plant):
    """At 95 % touched steps the plain step cannot be seen; without a past the share is a range from nothing."""
    found = prefill_drag.prefill_drag(plant(turns=0.95).window())
    assert found is not None
    assert found.plain_step is None
    assert found.share() is None
    share = diagnose(plant(turns=0.95).window()).verdict.share
    assert share is not None
    assert share.low == 0.0


def test_blocks_are_means_of_at_least_three_seconds(plant):
    """Twelve columns of 1 s make four blocks of three; a block without a reading is unknown, not zero."""
    window = plant().window()
    values = np.tile(np.repeat([1.0, 2.0, np.nan, 4.0], 3), (8, 1))
    found = blocks.means(replace(window, values={signals.WAITING: values}), signals.WAITING)
    assert np.array_equal(found[0], [1.0, 2.0, np.nan, 4.0], equal_nan=True)
