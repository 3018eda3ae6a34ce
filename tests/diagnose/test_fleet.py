"""Engines of one model as each other's measure, on windows made by the plant's arithmetic."""

from __future__ import annotations

from dataclasses import replace

import pytest

from collector import signals
from collector.model import Facts, Window
from diagnose import fleet
from diagnose.confidence import calibration
from diagnose.engine import diagnose
from diagnose.model import Class, Healthy, NoData

KNOWN = Facts(model="glm-5", version="0.5.23", role="unified", accelerator="NVIDIA H20", kv_bytes_per_token=44_928.0, expected_ranks=8)


def engine(window: Window, name: str, **facts: object) -> Window:
    return replace(window, engine=replace(window.engine, id=name, facts=replace(KNOWN, **facts)))  # type: ignore[arg-type]


def group_outcome(window: Window, twins: list[Window]):
    return next(o.outcome for o in diagnose(window, twins=twins).outcomes if o.rule == "whole_group_slow")


def test_a_slow_engine_is_named_against_its_twins(plant):
    """Cards 1.4 times as slow as three twins': steps are 40 % longer, which is 0.4 / 1.4 of a step, and no rank is named."""
    twins = [plant().window() for _ in range(3)]
    verdict = diagnose(plant(group=1.4).window(), twins=twins).verdict
    assert verdict.cause == "whole_group_slow"
    assert verdict.klass is Class.INSUFFICIENT
    assert verdict.ranks == ()
    assert "40% slower than its 3 twins at the same load" in verdict.summary
    assert verdict.share is not None
    assert verdict.share.mid == pytest.approx(0.4 / 1.4, abs=0.01)


def test_its_twins_are_healthy_beside_it(plant):
    """One slow engine among three does not make the two others fast or slow."""
    slow, fine = plant(group=1.4).window(), plant().window()
    verdict = diagnose(fine, twins=[slow, fine]).verdict
    assert verdict.klass is Class.HEALTHY
    assert verdict.confidence == calibration().healthy  # nothing was left untested


def test_one_fast_twin_makes_nobody_slow(plant):
    """Against a newer card and an equal one: more than half of the twins must be faster before an engine is called slow."""
    assert isinstance(group_outcome(plant().window(), [plant(group=0.7).window(), plant().window()]), Healthy)
    assert diagnose(plant().window(), twins=[plant(group=0.7).window()] * 2).verdict.cause == "whole_group_slow"


def test_two_engines_have_no_majority(plant):
    """With one twin neither is the measure of the other, and both outcome and notes say so."""
    result = diagnose(plant(group=1.4).window(), twins=[plant().window()])
    assert result.verdict.klass is Class.HEALTHY
    assert result.verdict.confidence < calibration().healthy
    assert "one twin is no majority" in " ".join(result.notes)
    found = group_outcome(plant(group=1.4).window(), [plant().window()])
    assert isinstance(found, NoData)
    assert "neither is the measure" in found.why


def test_a_twins_step_time_is_moved_to_this_engines_load(plant):
    """Contexts twice as long cost their pairs x seconds per pair: a longer step for it is no slowness."""
    longer = plant(length=(12_000.0,) * 64)
    assert longer.step_time > plant().step_time
    found = group_outcome(longer.window(), [plant().window()] * 3)
    assert isinstance(found, Healthy)
    assert "of its 3 twins at this load" in found.why


def test_twins_with_another_load_are_no_measure(plant):
    """Half the requests give half the tokens per step, beyond 1.25: with two of three twins left out nothing is compared."""
    half = plant(running=(4.0,) * 64).window()
    found = group_outcome(plant(group=1.4).window(), [half, half, plant().window()])
    assert isinstance(found, NoData)
    assert "fewer than 2 of its 3 twins" in found.why


def test_the_engines_own_past_goes_before_its_twins(plant):
    """An engine on slower cards that is as it always was is healthy, whatever its twins do."""
    slow = plant(group=1.4).window()
    assert diagnose(slow, slow, twins=[plant().window()] * 3).verdict.klass is Class.HEALTHY


def test_level_experts_of_the_twins_are_asked_too(plant):
    """Longer steps with balancedness 0.55 below the twins' are the experts' matter and not the group's."""
    hot = plant(experts=0.015, balancedness=0.3, hot=4).window()
    found = group_outcome(hot, [plant().window()] * 3)
    assert isinstance(found, Healthy)
    assert "experts explain it" in found.why


def test_what_makes_a_twin(plant):
    """The same model, version, role, card and ranks; never itself, and never an engine that does not say what it serves."""
    window = plant().window()
    me, same = engine(window, "a"), engine(window, "b")
    other = [
        engine(window, "c", model="glm-4"),
        engine(window, "d", version="0.5.22"),
        engine(window, "e", role="decode"),
        engine(window, "f", accelerator="NVIDIA H200"),
        engine(plant(ranks=4).window(), "g"),
        engine(window, "h", model=None),
    ]
    assert fleet.twins(me, [me, same, *other]) == (same,)
    assert fleet.twins(other[-1], [engine(window, "i", model=None)]) == ()


def test_a_window_without_what_a_comparison_needs_is_not_measured(plant):
    """Without cadence there is no excess over any twin."""
    blind = plant().window().without(signals.DECODE_STEPS, signals.STEPS_ACTIVE)
    assert fleet.measure(blind, [plant().window()] * 3, None, 1.25) is None
