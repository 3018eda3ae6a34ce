"""Rules on cards: a sign names the card, the group's excess is its price; a sign that costs nothing alarms nobody."""

from __future__ import annotations

from dataclasses import replace

import pytest

from collector import signals
from diagnose import over_past
from diagnose.engine import diagnose
from diagnose.model import Class, Finding, Healthy, NoData, Share, Verdict
from diagnose.over_past import Excess
from diagnose.rules import load
from tests.diagnose.conftest import as_stated

CARDS = {
    "gpu_throttled": {"throttled": {3: 0.4}},
    "gpu_degraded": {"corrected": {3: 20.0}},
    "link_degraded": {"link_errors": {3: 40.0}},
}


def outcome(rule, window, baseline=None):
    (found,) = [o.outcome for o in diagnose(window, baseline, {rule: load()[rule]}).outcomes]
    return found


@pytest.fixture
def past(plant):
    return plant(cards=True).window()


@pytest.mark.parametrize("rule", sorted(CARDS))
def test_a_sign_and_an_excess_name_the_card_and_its_price(rule, plant, past):
    """The group is 1.3 times as slow at the same load: about 0.3 / 1.3 of the step time is the card's, and nobody else is blamed."""
    sick = plant(group=1.3, cards=True, **CARDS[rule])
    verdict = diagnose(sick.window(), past).verdict
    assert (verdict.klass, verdict.cause, verdict.ranks) == (Class.SINGLE_POINT, rule, (3,))
    assert verdict.also == ()
    truth = 1.0 - plant().step_time / sick.step_time
    assert verdict.share is not None
    assert verdict.share.mid == pytest.approx(truth, rel=0.15)
    assert f"rank {3}" in verdict.summary
    assert verdict.evidence[0].rank == 3


@pytest.mark.parametrize("rule", sorted(CARDS))
def test_a_sign_that_costs_nothing_is_a_note(rule, plant, past):
    """At the step time of the past the engine is healthy, and the sign stands among the notes with its numbers."""
    result = diagnose(plant(cards=True, **CARDS[rule]).window(), past)
    assert result.verdict.klass is Class.HEALTHY
    assert any("rank 3" in note.lower() and "unexplained" in note for note in result.notes)


@pytest.mark.parametrize("rule", sorted(CARDS))
def test_a_new_sign_whose_price_is_wide_open_is_not_called_free(rule, plant, past, monkeypatch):
    """An excess of 2 % that may be 12: prompts everywhere hide what the card costs, and that is no proof of nothing. At most 8 is."""
    window = plant(cards=True, **CARDS[rule]).window()
    for high, said in ((0.12, NoData), (0.08, Healthy)):
        excess = Excess(Share(0.02, -0.08, high), 0.037, 0.038, 1.0, 0.0)
        monkeypatch.setattr(over_past, "excess", lambda *_, excess=excess: excess)
        found = outcome(rule, window, past)
        assert isinstance(found, said)
        assert "2.0%" in found.why


@pytest.mark.parametrize("rule", sorted(CARDS))
def test_a_sign_that_the_past_had_too_explains_no_rise(rule, plant):
    """The card was as bad when the group was fast: the group is slow for another reason, which no card tells."""
    before, now = plant(cards=True, **CARDS[rule]).window(), plant(group=1.3, cards=True, **CARDS[rule]).window()
    verdict = diagnose(now, before).verdict
    assert (verdict.klass, verdict.cause) == (Class.INSUFFICIENT, "whole_group_slow")


@pytest.mark.parametrize("rule", sorted(CARDS))
def test_level_cards_clear_themselves(rule, past):
    """Read, and nothing to see."""
    assert isinstance(outcome(rule, past, past), Healthy)


@pytest.mark.parametrize("rule", sorted(CARDS))
def test_unread_cards_are_no_data_and_no_obstacle(rule, plant):
    """Without any page of cards the rule says so, and the engine can be healthy all the same."""
    window = plant().window()
    assert isinstance(outcome(rule, window, window), NoData)
    verdict = diagnose(window, window).verdict
    assert verdict.klass is Class.HEALTHY
    assert not [missing for missing in verdict.missing if missing.signal.startswith("card_")]


def test_cards_read_in_part_miss_their_key_field_unless_the_past_clears_them(plant):
    """The default counters lack ECC and link errors: without a past that is insufficient, with the line to add; a step time that has not
    risen clears every card, whatever it would have said."""
    lacking = (signals.CARD_CORRECTED, signals.CARD_UNCORRECTED, signals.CARD_LINK_ERRORS, signals.CARD_THERMAL)
    window = plant(cards=True).window().without(*lacking)
    verdict = diagnose(window).verdict
    assert verdict.klass is Class.INSUFFICIENT
    assert any("DCGM_FI_DEV_ECC_DBE_VOL_TOTAL" in missing.enable for missing in verdict.missing)
    assert diagnose(window, window).verdict.klass is Class.HEALTHY


def test_power_capping_of_all_cards_at_equal_clocks_is_healthy(plant, past):
    """0x4 on every card under full load is a setting, and no note either."""
    window = plant(cards=True).window()
    capped = replace(window, values={**window.values, signals.CARD_CAPPED: window.get(signals.CARD_CAPPED) + 1.0})
    result = diagnose(capped, past)
    assert result.verdict.klass is Class.HEALTHY
    assert not any("limit" in note for note in result.notes)


def test_one_card_capped_below_its_peers_is_named_without_calling_it_heat(plant, past):
    """A lower limit on one card holds the group up as a hot one does; the words say what it is."""
    window = plant(group=1.3, cards=True, throttled={2: 0.6}).window()
    values = {**window.values, signals.CARD_CAPPED: window.get(signals.CARD_THERMAL), signals.CARD_THERMAL: window.get(signals.CARD_BRAKE)}
    verdict = diagnose(replace(window, values=values), past).verdict
    assert (verdict.cause, verdict.ranks) == ("gpu_throttled", (2,))
    assert "at its power limit" in verdict.summary
    assert "heat" not in verdict.summary


def test_a_reason_at_the_peers_clock_is_harmless_whatever_the_group_does(plant, past):
    """Heat that lowers no clock does not explain a slow group."""
    window = plant(group=1.3, cards=True, throttled={3: 1.0}).window()
    verdict = diagnose(window, past).verdict
    assert verdict.cause == "whole_group_slow"


@pytest.mark.parametrize(
    ("code", "rule"), [(94, "gpu_degraded"), (79, "gpu_degraded"), (74, "link_degraded")], ids=["memory", "card", "link"]
)
def test_an_xid_belongs_to_the_rule_of_its_part(code, rule, plant, past):
    """74 is a link's, the others the card's; the summary says the code and what it means."""
    verdict = diagnose(plant(group=1.3, cards=True, xid={4: code}).window(), past).verdict
    assert (verdict.cause, verdict.ranks) == (rule, (4,))
    assert f"XID {code}" in verdict.summary


def test_without_a_past_a_slow_card_is_named_and_its_price_bounded_by_its_clock(plant):
    """A card at 0.4 of its peers' clock costs at most 0.6 of the step time; how much is not said to be known."""
    verdict: Verdict = diagnose(plant(group=1.3, cards=True, throttled={3: 0.4}).window(), sure=as_stated).verdict
    assert (verdict.cause, verdict.ranks) == ("gpu_throttled", (3,))
    assert verdict.share is not None
    assert (verdict.share.low, round(verdict.share.high, 2)) == (0.0, 0.6)
    assert verdict.confidence <= 0.6
    assert "--baseline" in verdict.would_tell


def test_an_old_xid_without_a_past_blames_nobody(plant):
    """It stays on show after its cause has gone."""
    result = diagnose(plant(cards=True, xid={4: 94}).window())
    assert result.verdict.klass is Class.HEALTHY
    assert any("XID 94" in note and "since when is not known" in note for note in result.notes)


def test_two_kinds_of_signs_share_the_price(plant, past):
    """A hot card here, a bad link there: both are named, each with a range down to nothing."""
    verdict = diagnose(plant(group=1.4, cards=True, throttled={3: 0.4}, link_errors={6: 40.0}).window(), past).verdict
    named = {v.cause: v.ranks for v in (verdict, *verdict.also)}
    assert named == {"gpu_throttled": (3,), "link_degraded": (6,)}
    assert verdict.share is not None
    assert verdict.share.low == 0.0
    assert "drain" in verdict.would_tell


def test_errors_that_all_cards_count_are_no_single_cards(plant, past):
    """A switch or a batch of cards: no peer is better."""
    window = plant(group=1.3, cards=True, link_errors=dict.fromkeys(range(8), 40.0)).window()
    assert isinstance(outcome("link_degraded", window, past), Healthy)


@pytest.mark.parametrize("rule", sorted(CARDS))
def test_a_short_window_blames_no_card(rule, plant, past):
    """Two seconds show nothing that persists."""
    assert not isinstance(outcome(rule, plant(group=1.3, cards=True, seconds=2, **CARDS[rule]).window(), past), Finding)


def test_without_cards_a_slow_group_is_told_which_fields_would_tell(scenes):
    """whole_group_slow names the option and the fields; with level cards it says that they were looked at."""
    past = scenes["healthy"].window()
    tell = diagnose(scenes["whole_group_slow"].window(), past).verdict.would_tell
    assert "--hardware" in tell
    assert "DCGM_FI_DEV_SM_CLOCK" in tell
    level = replace(scenes["whole_group_slow"], cards=True).window()
    assert "no card stands out" in diagnose(level, replace(scenes["healthy"], cards=True).window()).verdict.would_tell


def test_another_xid_than_that_of_the_past_is_a_new_sign(plant):
    """The same code explains no rise; a new one does."""
    sick = plant(group=1.3, cards=True, xid={4: 79}).window()
    assert diagnose(sick, plant(cards=True, xid={4: 79}).window()).verdict.cause == "whole_group_slow"
    assert diagnose(sick, plant(cards=True, xid={4: 94}).window()).verdict.cause == "gpu_degraded"


def test_a_past_without_any_interval_is_no_past(plant):
    """Nothing can be compared with it, and nothing fails."""
    empty = plant(cards=True, seconds=0).window()
    result = diagnose(plant(group=1.3, cards=True, throttled={3: 0.4}).window(), replace(empty, values={}))
    assert result.verdict.cause == "gpu_throttled"
    assert not [o for o in result.outcomes if "failed" in getattr(o.outcome, "why", "")]


def test_a_card_that_was_slow_and_is_slower_now_is_a_new_sign(plant):
    """At 0.9 of its peers' clock the group was as it was; at 0.4 the rise is the card's."""
    before = plant(cards=True, throttled={3: 0.9}).window()
    verdict = diagnose(plant(group=1.3, cards=True, throttled={3: 0.4}).window(), before).verdict
    assert (verdict.cause, verdict.ranks) == ("gpu_throttled", (3,))
