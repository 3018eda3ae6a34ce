"""From a window to a verdict, on windows made by the plant's arithmetic."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

from collector import signals
from diagnose.engine import diagnose
from diagnose.model import Class, Finding, Healthy, NoData
from diagnose.rules import load

CAUSES = tuple(load())


def test_a_level_group_is_healthy_and_every_class_is_ruled_out_with_a_reason(scenes):
    """With all signals there and nothing wrong the verdict is healthy, names nobody, and says why each class is out."""
    window = scenes["healthy"].window()
    verdict = diagnose(window, window).verdict
    assert verdict.klass is Class.HEALTHY
    assert verdict.cause is None
    assert verdict.ranks == ()
    assert {r.klass for r in verdict.ruled_out} == {Class.SINGLE_POINT, Class.LOAD, Class.STRUCTURAL}
    assert all(r.why for r in verdict.ruled_out)
    assert verdict.confidence > 0.5  # surer than not; how sure is the calibration's to say


@pytest.mark.parametrize("cause", CAUSES)
def test_each_cause_is_named_with_its_class_and_its_ranks(cause, scenes, culprits):
    """A window that shows one cause gets that cause, its rule's class, and exactly the culprit ranks."""
    verdict = diagnose(scenes[cause].window(), scenes["healthy"].window()).verdict
    assert verdict.cause == cause
    assert verdict.klass is load()[cause].klass
    assert verdict.ranks == culprits[cause]
    assert verdict.remedy
    assert verdict.evidence
    assert verdict.summary


@pytest.mark.parametrize(
    "cause", ["context_length_skew", "request_count_skew", "long_prefill", "host_cpu_starved", "slow_rank", "expert_hotspot"]
)
def test_a_fault_present_since_the_start_is_found_without_a_past(cause, scenes, culprits):
    """Peers and physics name these causes with no healthy window to compare with."""
    verdict = diagnose(scenes[cause].window()).verdict
    assert verdict.cause == cause
    assert verdict.ranks == culprits[cause]


def test_levelling_contexts_gives_back_the_share_that_the_arithmetic_says(scenes):
    """The load share brackets (max - mean) x seconds per pair / step time, the plant's own truth."""
    sick = scenes["context_length_skew"]
    truth = (sick.pairs.max() - sick.pairs.mean()) * sick.pair_cost / sick.step_time
    share = diagnose(sick.window(), scenes["healthy"].window()).verdict.share
    assert share is not None
    assert share.low <= truth <= share.high
    assert share.mid == pytest.approx(truth, rel=0.25)


def test_a_late_host_costs_what_leaves_the_device_dry(scenes):
    """With the device timer the host's share is exactly the time per step in which the device had nothing to do."""
    sick = scenes["host_cpu_starved"]
    share = diagnose(sick.window(), scenes["healthy"].window()).verdict.share
    assert share is not None
    assert share.mid == pytest.approx((sick.step_time - sick.device) / sick.step_time, rel=0.05)


def test_lateness_hidden_behind_the_device_is_no_finding(plant):
    """A rank 20 ms late per step under a 36 ms device step costs nothing with overlapped scheduling: healthy."""
    hidden = plant(delay={5: 0.020})
    assert hidden.step_time == hidden.device
    verdict = diagnose(hidden.window(), plant().window()).verdict
    assert verdict.klass is Class.HEALTHY


def test_hidden_lateness_does_not_page_even_without_the_device_timer(plant):
    """Without the device timer the healthy past shows that the step time did not rise."""
    verdict = diagnose(plant(delay={5: 0.020}, timer=False).window(), plant(timer=False).window()).verdict
    assert verdict.klass is Class.HEALTHY


def test_two_causes_at_once_are_both_named_largest_first(plant):
    """Long contexts on rank 0 and a late host on rank 5: both shares are reported, the larger one first."""
    sick = plant(length=(100_000.0, *(6000.0,) * 63), delay={5: 0.120})
    verdict = diagnose(sick.window(), plant().window()).verdict
    assert verdict.cause == "host_cpu_starved"
    assert verdict.ranks == (5,)
    assert [(v.cause, v.ranks) for v in verdict.also] == [("context_length_skew", (0,))]
    assert set(verdict.lost_time.by_cause) >= {"host_cpu_starved", "context_length_skew"}


def test_healthy_skew_is_not_an_alarm(plant):
    """DP attention measured healthy at 1.85 times max over mean tokens: the skew costs little and nobody is blamed."""
    lengths = (11_100.0, 5300.0, 6100.0, 4900.0, 5600.0, 5200.0, 5000.0, 4800.0, *(6000.0,) * 56)
    skewed = plant(length=lengths)
    assert skewed.pairs.max() / skewed.pairs.mean() > 1.8
    verdict = diagnose(skewed.window(), plant().window()).verdict
    assert verdict.klass is Class.HEALTHY


def test_an_idle_engine_is_not_healthy_but_unknown(plant):
    """No running requests and no steps: there is nothing to judge, and the answer says so."""
    window = plant().window()
    idle = replace(window, values={n: v * 0.0 for n, v in window.values.items()})
    verdict = diagnose(idle).verdict
    assert verdict.klass is Class.INSUFFICIENT
    assert "nothing to judge" in verdict.summary


def test_without_metrics_nothing_is_healthy(plant):
    """Load snapshots alone cannot clear the hosts: insufficient, and the flag that turns the waits on is named."""
    loads_only = (
        plant()
        .window()
        .without(
            signals.SYNC_WAIT, signals.RECV_WAIT, signals.STEPS_ACTIVE, signals.STEPS_IDLE, signals.ATTENTION_PAIRS, signals.SCHEDULER_CPU
        )
    )
    verdict = diagnose(loads_only).verdict
    assert verdict.klass is Class.INSUFFICIENT
    assert any("SGLANG_ENABLE_METRICS_DP_ATTENTION=1" in m.enable for m in verdict.missing)


def test_load_snapshots_alone_still_name_a_context_skew(scenes):
    """Resident tokens stand in for attention pairs: right class and rank, with less confidence than with the pairs."""
    sick, past = scenes["context_length_skew"].window(), scenes["healthy"].window()
    metrics = [n for n in sick.values if n not in (signals.RUNNING, signals.RESIDENT_TOKENS, signals.DECODE_STEPS, signals.DECODE_TIME)]
    full, partial = diagnose(sick, past).verdict, diagnose(sick.without(*metrics), past).verdict
    assert (partial.cause, partial.ranks) == ("context_length_skew", (0,))
    assert partial.confidence < full.confidence


def test_two_ranks_name_the_late_one_by_physics(plant):
    """With two ranks there is no majority, but who waits least arrived last."""
    verdict = diagnose(plant(ranks=2, delay={1: 0.060}).window(), plant(ranks=2).window()).verdict
    assert (verdict.klass, verdict.ranks) == (Class.SINGLE_POINT, (1,))


def test_most_ranks_waiting_little_blames_nobody(plant):
    """Five of eight late is no small cluster: no rank is named."""
    verdict = diagnose(plant(delay=dict.fromkeys(range(5), 0.060)).window()).verdict
    assert verdict.ranks == ()
    assert verdict.klass is not Class.SINGLE_POINT


def test_a_late_rank_with_most_requests_is_left_open(plant):
    """If the late rank also runs many more requests, load and rank cannot be told apart: a range from zero and the experiment."""
    running = tuple(30.0 if r == 5 else 8.0 for r in range(64))
    outcome = {o.rule: o.outcome for o in diagnose(plant(delay={5: 0.060}, running=running).window()).outcomes}["host_cpu_starved"]
    assert isinstance(outcome, Finding)
    assert outcome.share.low == 0.0
    assert "move some away" in outcome.would_tell


def test_few_tokens_make_no_hot_expert(plant):
    """Eight tokens per step make any expert load look uneven: not structural."""
    few = plant(running=(1.0,) * 64, balancedness=0.2, hot=1, experts=0.015)
    outcome = {o.rule: o.outcome for o in diagnose(few.window(), plant(running=(1.0,) * 64).window()).outcomes}["expert_hotspot"]
    assert isinstance(outcome, Healthy)


def test_uneven_experts_that_cost_nothing_are_no_finding(plant):
    """Low balancedness with an unchanged step time (fixed-shape dispatch) is waste, not slowness."""
    verdict = diagnose(plant(balancedness=0.3, hot=4).window(), plant().window()).verdict
    assert verdict.klass is Class.HEALTHY


def test_a_stopped_publisher_needs_step_counts_to_be_told_from_a_stopped_rank(plant):
    """One rank's snapshot stops while it steps: stale_ledger. Without step counts the rank could be stopped: insufficient, nobody named."""
    window = plant(frozen={6: 11.0}).window()
    assert diagnose(window).verdict.cause == "stale_ledger"
    blind = diagnose(window.without(signals.STEPS_ACTIVE, signals.STEPS_IDLE)).verdict
    assert (blind.klass, blind.ranks) == (Class.INSUFFICIENT, ())


def test_a_frozen_group_names_nobody_and_says_what_would(scenes):
    """All snapshots stop together: single-point, no rank, and the stack that tells."""
    verdict = diagnose(scenes["stuck_rank"].window()).verdict
    assert (verdict.klass, verdict.cause, verdict.ranks) == (Class.SINGLE_POINT, "stuck_rank", ())
    assert "py-spy" in verdict.would_tell


def test_a_short_window_names_nobody(scenes):
    """Three seconds cannot show that anything persists: insufficient evidence, never a guess."""
    for cause in ("context_length_skew", "host_cpu_starved", "expert_hotspot"):
        verdict = diagnose(replace(scenes[cause], seconds=3).window(), scenes["healthy"].window()).verdict
        assert verdict.klass is Class.INSUFFICIENT


def test_a_rule_that_raises_does_not_silence_the_others(scenes):
    """One broken rule answers NoData with its error; the verdict still stands."""

    def broken(case, limit):
        raise ZeroDivisionError("boom")

    rules = dict(load())
    rules["long_prefill"] = replace(rules["long_prefill"], judge=broken)
    result = diagnose(scenes["host_cpu_starved"].window(), scenes["healthy"].window(), rules)
    assert result.verdict.cause == "host_cpu_starved"
    outcome = {o.rule: o.outcome for o in result.outcomes}["long_prefill"]
    assert isinstance(outcome, NoData)
    assert "ZeroDivisionError" in outcome.why


def test_unknown_cards_leave_the_cost_open(plant, scenes):
    """On an unknown card, without a past and without variation, a skew's cost is unknown: insufficient, not a guess."""
    sick = replace(scenes["context_length_skew"], accelerator=None)
    verdict = diagnose(sick.window()).verdict
    assert verdict.klass is Class.INSUFFICIENT


def test_an_unknown_card_is_priced_by_its_own_past(scenes):
    """With a healthy past the rise of the step time over the added pairs prices a pair without knowing the card."""
    sick, past = (replace(scenes[n], accelerator=None) for n in ("context_length_skew", "healthy"))
    verdict = diagnose(sick.window(), past.window()).verdict
    assert (verdict.cause, verdict.ranks) == ("context_length_skew", (0,))


def test_a_window_too_short_for_two_blocks_clears_nobody(scenes):
    """A rank 60 ms late in a five-second window: the lateness cannot be shown to persist, so the answer is unknown, never healthy."""
    for seconds in (4, 5):
        verdict = diagnose(replace(scenes["slow_rank"], seconds=seconds).window()).verdict
        assert verdict.klass is Class.INSUFFICIENT


@pytest.mark.parametrize("past", [True, False])
def test_lateness_that_goes_round_all_ranks_is_not_healthy(plant, past):
    """Every rank is last for a while: the waits are alike and nobody can be blamed, but the devices run dry, so nothing is green."""
    turns = [plant(delay={rank: 0.060}, seconds=24).window() for rank in range(8)]
    mixed = {name: values.copy() for name, values in turns[0].values.items()}
    for name, values in mixed.items():
        for rank, turn in enumerate(turns):
            values[:, rank::8] = turn.values[name][:, rank::8]
    verdict = diagnose(replace(turns[0], values=mixed), plant().window() if past else None).verdict
    assert verdict.klass is Class.INSUFFICIENT
    assert verdict.ranks == ()
    assert verdict.lost_time.share is not None
    assert verdict.lost_time.share > 0.3


@pytest.mark.parametrize(("observed", "klass"), [(False, Class.HEALTHY), (True, Class.INSUFFICIENT)])
def test_a_rule_whose_optional_source_was_not_read_does_not_stand_in_the_way_of_healthy(observed, klass, scenes, monkeypatch):
    """Silence of a rule counts from the moment its source says anything: before, the engine is simply read without that source."""
    window = scenes["healthy"].window()
    own = "its_own_signal"
    monkeypatch.setitem(signals.CATALOGUE, own, replace(signals.CATALOGUE[signals.RUNNING], name=own, optional=True))
    asked = dict(load())
    asked["extra"] = replace(
        asked["slow_rank"], id="extra", needs=(own, signals.RUNNING), judge=lambda case, limit: NoData((), "cannot tell")
    )
    values = dict(window.values)
    if observed:
        values[own] = np.ones_like(values[signals.RUNNING])
    said = diagnose(replace(window, values=values), window, asked).verdict
    assert said.klass is klass
    if klass is Class.HEALTHY:
        assert said.confidence == diagnose(window, window).verdict.confidence


def test_a_rise_too_small_to_blame_is_told_with_its_figure(plant):
    """1.05 times as slow at the same load is 0.05 / 1.05 = 4.8 % of step time: healthy, and a note has both step times and the share."""
    slower = plant(group=1.05)
    told = diagnose(slower.window(), plant().window())
    assert told.verdict.klass is Class.HEALTHY
    (note,) = [note for note in told.notes if "in the healthy past" in note]
    assert f"{slower.step_time * 1e3:.1f} ms" in note
    assert f"{plant().step_time * 1e3:.1f} ms" in note
    said = float(re.search(r"([\d.]+)%", note)[1])  # type: ignore[index]
    assert said == pytest.approx(100 * 0.05 / 1.05, abs=1.0)


def test_a_slow_group_without_a_cause_does_not_rule_out_what_was_not_read(plant):
    """A hot card lengthens everybody's steps and shows in no wait. While no card is read, single-point stays open; with cards read that
    show nothing it is ruled out. Load, of which all was read, is ruled out in both."""
    past = plant().window()
    unread = diagnose(plant(group=1.3).window(), past).verdict
    assert unread.cause == "whole_group_slow"
    assert {r.klass for r in unread.ruled_out} == {Class.LOAD}
    read = diagnose(plant(group=1.3, cards=True).window(), plant(cards=True).window()).verdict
    assert read.cause == "whole_group_slow"
    assert {r.klass for r in read.ruled_out} == {Class.LOAD, Class.SINGLE_POINT}
