"""What a report calls its confidence: the looked-up share of such verdicts that was right, the same wherever it is printed."""

from __future__ import annotations

import pytest

from diagnose.confidence import HABIT, calibrated, calibration
from diagnose.engine import diagnose
from diagnose.model import Class, Finding


@pytest.mark.parametrize("scene", ["context_length_skew", "host_cpu_starved", "expert_hotspot", "whole_group_slow"])
def test_a_verdict_prints_how_often_its_like_was_right(scene, scenes):
    """The confidence of a verdict, and of the finding behind it, is the table's for what the rule states."""
    window, past = scenes[scene].window(), scenes["healthy"].window()
    stated = diagnose(window, past, sure=lambda s, _: s).verdict
    said = diagnose(window, past)
    assert said.verdict.cause == stated.cause == scene
    assert said.verdict.confidence == calibrated(stated.confidence, scene)
    finding = next(o.outcome for o in said.outcomes if o.rule == scene)
    assert isinstance(finding, Finding)
    assert finding.confidence == said.verdict.confidence


@pytest.mark.parametrize("scene", ["context_length_skew", "expert_hotspot", "host_cpu_starved"])
def test_a_habit_is_told_from_a_fault_by_a_past_alone(scene, scenes):
    """A load or a layout that is blamed without a past may be how the traffic is: four in five at most. A late host is nobody's habit."""
    window = scenes[scene].window()
    stated, said = diagnose(window, sure=lambda s, _: s).verdict, diagnose(window).verdict
    assert said.cause == scene
    full = calibrated(stated.confidence, scene)
    assert said.confidence == (full if scene == "host_cpu_starved" else min(full, HABIT))
    assert said.confidence < 0.9 or scene == "host_cpu_starved"


def test_healthy_is_as_sure_as_the_runs_show(scenes):
    """With everything looked at, `healthy` has the table's confidence, never more."""
    said = diagnose(scenes["healthy"].window(), scenes["healthy"].window()).verdict
    assert said.klass is Class.HEALTHY
    assert said.confidence == calibration().healthy


def test_a_report_says_where_its_confidence_comes_from(scenes):
    """A figure has its sample beside it; no figure, no word of it."""
    said = diagnose(scenes["context_length_skew"].window())
    assert any(f"{calibration().runs} simulated runs" in note and "GPU" in note for note in said.notes)
    blind = diagnose(_nothing(scenes["healthy"].window()))
    assert blind.verdict.confidence == 0.0
    assert not any("calibrated" in note for note in blind.notes)


def _nothing(window):
    for name in tuple(window.values):
        window = window.without(name)
    return window
